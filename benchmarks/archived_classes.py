"""Java's archive of its classes, which it maps at every start but the first ones after an installation.

A cluster writes it in the background, with a minute of processor time. So a measurement makes sure that it is there.
"""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path

from rich.console import Console

from cluster.demo.parts import ChildError, Children, Parts
from cluster.spark.java import find_java
from cluster.spark.session import class_archive, use_installed_pyspark

LONGEST_SECONDS = 600.0
"""An archive is written only while the machine has little else to do."""


def classes_are_archived(*, quick: bool) -> bool:
    """Return whether there is an archive for the installed Java and Spark.

    Parameters
    ----------
    quick
        If it is false and there is none, an idle cluster runs until it has written one.
    """
    use_installed_pyspark()
    archive = class_archive(find_java(), Path(tempfile.gettempdir())).file
    if not quick and not archive.exists():
        _write(archive)
    return archive.exists()


def _write(archive: Path) -> None:
    with (
        Console(stderr=True).status("once after an installation: Java's classes are archived, in about two minutes"),
        tempfile.TemporaryDirectory(prefix="fjord-classes-") as folder,
        Children(Path(folder) / "logs") as children,
    ):
        parts = Parts.on_free_ports(children, Path(folder))
        parts.start_broker()
        cluster = parts.start_cluster()
        with suppress(ChildError):  # the report says that there is none
            children.wait_until(archive.exists, cluster, seconds=LONGEST_SECONDS)
