"""Delta tables of streams and results. Imports nothing of the cluster but its errors."""
