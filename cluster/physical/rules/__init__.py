"""Rules of lowering: each makes one decision about how a logical plan runs.

Which queries share a fragment (`templates`, `marks`, `shared_panes`), what runs next to the scan (`pipelines`) and
behind the exchange (`behind_exchange`, `awaited_windows`, `operations`), where rows go (`partitioning`), and the last
operations for each query (`finishing`). :mod:`cluster.physical.lowering` applies them in one pass.
"""
