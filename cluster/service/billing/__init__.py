"""The energy cost of queries: estimates, the ledger, the bill."""
