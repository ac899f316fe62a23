"""Expressions: immutable nodes, and functions on them. This folder knows nothing of statements, plans and hosts."""
