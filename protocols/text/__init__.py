"""Quantities and texts as people write and read them: durations, sizes in bytes, text that is safe to print."""
