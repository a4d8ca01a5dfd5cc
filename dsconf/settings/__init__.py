"""Settings files: `[tool.dsconf]` in a pyproject.toml, or a dsconf.toml."""
