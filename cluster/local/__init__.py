"""Hosts a plan in one process, without Java or Spark: the same operators over files, lists of tuples or live batches.

:mod:`cluster.local.engine` is the host; what it runs of a plan is decided in :mod:`cluster.physical.lowering`.
"""
