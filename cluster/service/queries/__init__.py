"""Adding, explaining and dropping queries, and queries that wait for their relations."""
