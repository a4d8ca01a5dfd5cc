"""One room per format: its keys, its reader into the Plan, its writer from the Plan."""
