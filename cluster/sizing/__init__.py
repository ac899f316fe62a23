"""``fjord bench``: what a deployment of a given size needs, measured on this machine.

Knows the parts only as a user does: through their commands, the HTTP API, the broker, and the system's processes.
"""
