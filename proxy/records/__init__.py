"""Turning a packet's records into tuples: which queries each is for, and what was not transmitted."""
