"""Accepts the batches of proxies, and stores each exactly once in its stream's table before it is acknowledged."""
