"""The parts of a running cluster, made complete one after the other, and its engine."""
