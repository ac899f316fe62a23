"""What is registered: queries, streams, relations and plans, in SQLite, and what of it was lost."""
