"""A home for Spark in which its Python workers find PySpark compiled.

Spark puts an archive of PySpark's sources, `python/lib/pyspark.zip`, first on the path of each Python process that it
starts. Python caches no compiled code for an archive: each of these processes, at least seven, would compile
PySpark, which takes half a second. In a home without the archive they import the installed package.
"""

from __future__ import annotations

import os
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from cluster.spark.cached_folders import cache_folder, cached_folder, link_entries

SPARK_HOME = "SPARK_HOME"


def use_installed_pyspark() -> None:
    """Make the workers of Spark sessions that this process starts import the installed PySpark.

    A ``SPARK_HOME`` that is set stays: the PySpark there may be another one.
    """
    if SPARK_HOME not in os.environ:
        os.environ[SPARK_HOME] = str(home_without_archives(cache_folder(os.environ)))


def home_without_archives(cache: Path) -> Path:
    """Return a home for Spark that has everything of the installed one but archives of Python code.

    Parameters
    ----------
    cache
        Where it is made, unless it is there.
    """
    package = find_spec("pyspark")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("PySpark is not installed: pip install pyspark", name="pyspark")
    installed = Path(package.origin).parent
    return cached_folder(
        cache,
        "spark",
        f"{installed} {version('pyspark')}",
        lambda folder: link_entries(installed, folder, without={"python"}),
    )
