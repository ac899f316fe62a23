"""Settings of Spark in a file: its own form, errors with the line, and no secret in any of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cluster.errors import ClusterError
from cluster.service.recorded_run import NOT_KEPT
from cluster.service.running.settings import ClusterSettings
from cluster.spark.java_process import public
from cluster.spark.settings_file import MOST_BYTES, read_spark_settings
from protocols.errors import SettingsError

if TYPE_CHECKING:
    from pathlib import Path


def test_lines_are_read_as_spark_reads_them(tmp_path: Path) -> None:
    file = tmp_path / "spark.conf"
    file.write_text("# ours\n\nspark.driver.host 10.0.0.5\nspark.cores.max=4\n  spark.a.b :  x y \nspark.c  = d = e\n")
    found = read_spark_settings(file)
    assert found == {"spark.driver.host": "10.0.0.5", "spark.cores.max": "4", "spark.a.b": "x y", "spark.c": "d = e"}
    assert ClusterSettings(spark=found).session.extra == found


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("secret-of-ours", "is no setting of Spark"),
        ("driver.host secret-of-ours", "is no setting of Spark"),
        ("spark.authenticate.secret", "is no setting of Spark"),
        ("spark.sql.shuffle.partitions secret-of-ours", "spark.sql.shuffle.partitions is set by Fjord"),
        ("spark.master secret-of-ours", "spark.master is set by Fjord"),
    ],
)
def test_what_is_no_setting_is_named_by_its_line_and_not_quoted(tmp_path: Path, line: str, message: str) -> None:
    file = tmp_path / "spark.conf"
    file.write_text(f"# ours\n{line}\n")
    with pytest.raises(ClusterError, match=f"line 2 of .*{message}") as caught:
        read_spark_settings(file)
    assert "secret-of-ours" not in f"{caught.value} {caught.value.hint}"


def test_files_that_cannot_be_read_are_errors(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be read"):
        read_spark_settings(tmp_path / "none")
    (tmp_path / "long").write_text("#" * (MOST_BYTES + 1))
    with pytest.raises(ClusterError, match="too long"):
        read_spark_settings(tmp_path / "long")


def test_the_secret_is_neither_shown_nor_recorded() -> None:
    assert "hidden" not in repr(ClusterSettings(spark={"spark.authenticate.secret": "hidden"}))
    assert "spark" in NOT_KEPT
    options = {"spark.authenticate.secret": "hidden", "spark.authenticate": "true", "spark.ssl.keyPassword": "hidden"}
    assert public(options) == {"spark.authenticate": "true"}, "what every user of the machine may see"
