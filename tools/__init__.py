"""Generators that are run by hand; what they write is committed."""
