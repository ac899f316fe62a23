"""What commands and programs use to talk to a running cluster: the client of its HTTP API, its options, its token."""
