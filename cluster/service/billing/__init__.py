"""What queries cost the motes: estimates, the ledger, the bill."""
