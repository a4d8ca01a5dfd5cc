"""What is known of the models of transformers."""
