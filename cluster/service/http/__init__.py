"""The HTTP API: routes, bodies of requests, errors, metrics."""
