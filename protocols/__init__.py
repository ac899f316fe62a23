"""What Fjord's machines share: wire formats, the MQTT link, energy, the search for sampling programs, the command line.

This package imports nothing else of Fjord; motes, proxies and the cluster meet only through it and a broker.
"""
