"""What a cluster's processes have in common, loaded once and then forked."""

from __future__ import annotations

import gc
import importlib
import os
from typing import Final

from cluster.spark.session import KEPT_MEMORY, PYTHON

MODULES: Final = (
    "cluster.service.server",
    "cluster.spark.hosting",
    "cluster.spark.upstream",
    "pyspark.worker",
    "pyspark.sql.streaming.transform_with_state_driver_worker",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
)
"""What the cluster runs, and what Spark runs in Python; the latter name modules that Spark chooses."""

WHILE_LOADING: Final = {
    "OPENBLAS_NUM_THREADS": "1",
    "_RJEM_MALLOC_CONF": KEPT_MEMORY,
}
"""Variables that libraries read while they are loaded. Threads of OpenBLAS would be in the way of a fork."""


def fork_loaded_parent(master: str) -> None:
    """Load everything and make Spark's Python processes forks of this one; has to come before any thread.

    Only where Spark runs on this machine, and not if another Python has been set.
    """
    for name, value in WHILE_LOADING.items():
        os.environ.setdefault(name, value)
    gc.disable()  # what is loaded stays
    for module in MODULES:
        importlib.import_module(module)
    gc.enable()
    if PYTHON in os.environ or not master.startswith("local"):
        return
    import polars as pl  # noqa: PLC0415 - after the variables above

    from cluster.spark.forking.parent import start_forking_parent  # noqa: PLC0415

    parent = start_forking_parent(pl.Config.reload_env_vars)
    if parent is not None:
        os.environ[PYTHON] = str(parent.program)
