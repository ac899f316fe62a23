"""``fjord demo``: all parts on this machine, as separate processes, with a live view.

Knows the parts only as a user does: through their commands, the HTTP API and the broker.
"""
