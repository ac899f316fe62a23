"""Drivers: what devices of other makers say and understand over MQTT, translated to and from Fjord's own frames.

Pure state machines, like the rest of the proxy's core: messages and the time in, frames and messages out. The fleet
does not know whether a mote runs Fjord's firmware or is a thermometer that somebody bought.
"""
