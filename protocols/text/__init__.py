"""Durations and sizes in bytes as text, and text that is safe to print."""
