"""The lifetime of a fleet under a set of queries: which mote dies first and why, and the cost of each query."""
