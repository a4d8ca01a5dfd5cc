"""Source -> Plan -> target, and the report of what became of every key."""

TARGETS = ("fsdp2",)
"""What can be written."""
