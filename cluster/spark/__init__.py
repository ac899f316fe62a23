"""Runs the engine in Spark: two Structured Streaming queries of fixed shape, whatever the plan inside them.

:mod:`cluster.spark.hosting` starts both; one keeps state, in buckets, and one keeps none. The modules that Spark's
Python workers load (`source`, `upstream`, `downstream`) import no Spark at module level beyond what their base classes
need.
"""
