"""Delta tables: what a stream was, what a query answered. Imports nothing of the cluster but its errors."""
