"""The interfaces between Fjord's machines: topics, frames, sampling programs, stream schemas.

Everything here is data and pure functions. This package imports nothing else of Fjord; motes, proxies and the
cluster meet only through it and a broker.
"""
