"""Access to the HTTP API: roles and what they allow, tokens, and the names that the API answers to."""
