"""MQTT: addresses, frames, connections, and a link that reconnects."""
