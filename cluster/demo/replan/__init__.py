"""The scene in which rates of streams change, and a query goes on with another plan."""
