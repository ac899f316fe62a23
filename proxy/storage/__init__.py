"""What is on the proxy's disk: the spool, the catalog, the quarantine."""
