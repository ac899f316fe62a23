"""Java's archive of its classes, which it maps at every start but the first ones after an installation.

A cluster writes it in the background, with a minute of processor time. So a measurement makes sure that it is there.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from rich.console import Console

from cluster.demo.parts import Parts
from cluster.demo.processes import Children
from cluster.spark.home import use_installed_pyspark
from cluster.spark.java import find_java
from cluster.spark.session import class_archive

LONGEST_SECONDS = 600.0
"""An archive is written only while the machine has little else to do."""


def classes_are_archived() -> bool:
    """Return whether there is an archive for the installed Java and Spark."""
    use_installed_pyspark()
    return class_archive(find_java(), Path(tempfile.gettempdir())).file.exists()


def archive_classes() -> bool:
    """Run an idle cluster until it has written the archive, unless that is there; return whether there is one."""
    if classes_are_archived():
        return True
    with (
        Console(stderr=True).status("once after an installation: Java's classes are archived, in about two minutes"),
        tempfile.TemporaryDirectory(prefix="fjord-classes-") as folder,
        Children(Path(folder) / "logs") as children,
    ):
        parts = Parts.on_free_ports(children, Path(folder))
        parts.start_broker()
        parts.start_cluster()
        until = time.monotonic() + LONGEST_SECONDS
        while not classes_are_archived() and time.monotonic() < until:
            children.check()
            time.sleep(1.0)
    return classes_are_archived()
