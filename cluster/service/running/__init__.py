"""The parts of a running cluster, constructed one after another, and its engine."""
