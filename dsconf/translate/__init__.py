"""Source -> Plan -> target, and the report of what became of every key."""

TARGETS = (
    "fsdp2",
    "deepspeed",
    "accelerate-fsdp2",
    "accelerate-deepspeed",
    "trainer-fsdp2",
    "trainer-deepspeed",
    "axolotl",
)
"""What can be written."""
