"""Access to a running cluster for commands and programs: the client of its HTTP API, its options, its token."""
