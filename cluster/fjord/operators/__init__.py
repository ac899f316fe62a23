"""Physical operators, one per file."""
