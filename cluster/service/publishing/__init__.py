"""The cluster's output: results and demands."""
