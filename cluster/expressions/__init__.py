"""Expressions: immutable nodes, and the rules that work on them. Knows nothing of statements, plans and hosts."""
