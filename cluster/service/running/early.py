"""What a cluster starts before everything else: Java, which takes longest, and the parent of Spark's Python processes.

folder   [opened and locked]
Java     [ starts .......... ] [ context and session ]
here        [ imports ................ ] fork  the cluster itself
parent                                   [ waits for Spark, and forks
"""

from __future__ import annotations

import atexit
import gc
import importlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cluster.service.data_folder.folder import DataFolder, open_folder
from cluster.spark.early_session import begin_session
from cluster.spark.forking.parent import ForkingPlace, start_forking_parent
from cluster.spark.java_process import JavaProcess
from cluster.spark.session import KEPT_MEMORY, PYTHON, SPARK_FILES, begin_java
from cluster.spark.spark_log import SPARK_LOG, SparkLog

if TYPE_CHECKING:
    from cluster.service.running.settings import ClusterSettings
    from cluster.spark.java import JavaRuntime

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


@dataclass(frozen=True, slots=True)
class Begun:
    """What has been started.

    Parameters
    ----------
    folder
        The data folder, which is locked.
    java
        The Java for Spark.
    """

    folder: DataFolder
    java: JavaProcess


def begin(settings: ClusterSettings, runtime: JavaRuntime) -> Begun:
    """Open the data folder, start Java, and load everything meanwhile; has to come before any thread.

    Parameters
    ----------
    settings
        Of the cluster.
    runtime
        Which Java.

    Raises
    ------
    ClusterError
        If the data folder cannot be used.
    """
    folder = open_folder(settings.folder, adopt=settings.adopt)
    place = forking_place(settings.master)
    java = begin_java(settings.session, folder.path / SPARK_FILES, SparkLog(folder.path / SPARK_LOG), runtime)
    atexit.register(java.end)  # also if it is never used: after a Ctrl-C while all is loaded, a faulty setting
    begin_session(java, closing=[folder.lock])
    load()
    if place is not None:
        fork(place, closing=[folder.lock, java.descriptor])
    return Begun(folder, java)


def forking_place(master: str) -> ForkingPlace | None:
    """Make Spark use a parent on this machine, unless it runs on others or another Python has been set."""
    if PYTHON in os.environ or not master.startswith("local"):
        return None
    place = ForkingPlace.make()
    if place is not None:
        os.environ[PYTHON] = str(place.program)
        atexit.register(place.remove)  # unless the parent does so; it may not run yet, or have been killed
    return place


def load() -> None:
    """Import what the cluster and Spark's Python processes need."""
    for name, value in WHILE_LOADING.items():
        os.environ.setdefault(name, value)
    gc.disable()  # what is loaded stays
    for module in MODULES:
        importlib.import_module(module)
    gc.enable()


def fork(place: ForkingPlace, *, closing: Iterable[int] = ()) -> None:
    """Start the parent of Spark's Python processes."""
    import polars as pl  # noqa: PLC0415 - loaded above, with the variables that it reads

    start_forking_parent(place, pl.Config.reload_env_vars, closing=closing)
