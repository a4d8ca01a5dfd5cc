"""A Config becomes findings: rules, their condition language, and the reporters."""
