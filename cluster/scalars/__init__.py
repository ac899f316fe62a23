"""Scalar functions and operators over columns: series in, series out. Each function is one row of a table."""
