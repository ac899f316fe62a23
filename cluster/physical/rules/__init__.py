"""Rules of lowering: each decides one thing about how a logical plan runs, and nothing else does.

Which queries run as one (`templates`, `marks`, `shared_panes`), what runs next to the scan (`pipelines`), what behind
the exchange (`behind_exchange`, `awaited_windows`, `operations`), where rows go (`partitioning`), and what is left to
do for each query (`finishing`). :mod:`cluster.physical.lowering` applies them in one pass.
"""
