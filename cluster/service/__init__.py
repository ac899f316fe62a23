"""The cluster as people meet it: registry of queries, HTTP API, publisher of results."""
