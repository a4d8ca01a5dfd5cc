"""dsconf beside other tools, on configs with one fault each: writes docs/peers.md."""
