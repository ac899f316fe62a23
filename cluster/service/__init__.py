"""The cluster as a service: HTTP API, registry, catalog, billing and publishing, and the process that holds them."""
