"""What leaves the cluster: results, and demands."""
