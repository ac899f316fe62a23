"""What is registered, in SQLite: queries, streams, relations and plans; and recovery of lost epochs and versions."""
