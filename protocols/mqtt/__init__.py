"""MQTT: addresses, frames, connections, and a link that comes back."""
