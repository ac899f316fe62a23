"""The folder that holds a cluster's data: its format, its lock, its path."""
