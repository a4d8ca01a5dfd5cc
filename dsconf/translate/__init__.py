"""Source -> Plan -> target, and the report of what became of every key."""
