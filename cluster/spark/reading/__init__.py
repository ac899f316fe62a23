"""What a micro-batch reads of streams: which files of their tables, and the rows of which range of stamps.

All is decided in the driver, from two offsets and the tables' logs: :mod:`~cluster.spark.reading.live` for queries that
are up to date, :mod:`~cluster.spark.reading.backfill` for those that still read history. Both return
:class:`~cluster.spark.reading.reads.StreamRead`; tasks read the rows of these files (:mod:`cluster.spark.upstream`).
"""
