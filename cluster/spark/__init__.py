"""Hosts a Fjord in Spark: one Structured Streaming query of fixed shape, whatever the plan inside it.

The modules that Spark's Python workers load (`source`, `upstream`, `downstream`) import no Spark at module level beyond
what their base classes need.
"""
