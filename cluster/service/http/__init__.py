"""The HTTP API: routes, tokens, bodies, errors, metrics, and its client."""
