"""Spark's Python processes import the installed PySpark, which is compiled."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest

from cluster.spark.session import SPARK_HOME, home_without_archives, use_installed_pyspark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_home_has_everything_but_archives_of_python_code(tmp_path: Path) -> None:
    home = home_without_archives(tmp_path / "cache")
    installed = Path(pyspark.__file__).parent
    assert (home / "bin" / "spark-submit").is_file()
    assert (home / "jars").samefile(installed / "jars")
    assert {entry.name for entry in installed.iterdir()} - {entry.name for entry in home.iterdir()} == {"python"}


def test_the_home_is_made_once(tmp_path: Path) -> None:
    home = home_without_archives(tmp_path)
    assert home_without_archives(tmp_path) == home
    assert [entry.name for entry in tmp_path.iterdir()] == [home.name]


def test_a_home_that_is_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SPARK_HOME, "/elsewhere")
    use_installed_pyspark()
    assert os.environ[SPARK_HOME] == "/elsewhere"


@pytest.mark.spark
def test_workers_import_what_is_installed(spark: SparkSession) -> None:
    def imported(_: object) -> str:
        import pyspark as found

        return str(found.__file__)

    assert spark.sparkContext.parallelize([1], 1).map(imported).collect() == [pyspark.__file__]
