"""How long a fleet lasts under a set of queries, which mote dies first and why, and what each query costs."""
