"""Named checks, by format: what a condition over keys can't say. A rule asks for one with `check = "name"`."""
