"""Drivers: MQTT messages of devices of other makers, translated to and from Fjord's own frames.

Pure state machines, like the rest of the proxy's core: messages and the time in, frames and messages out. The fleet
does not know whether a mote runs Fjord's firmware or is a thermometer from a shop.
"""
