"""Spark's partitions get equally many buckets each, as far as they can be divided."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from cluster.physical.plan_files import PlanFiles
from cluster.service.registry.registry import Registry
from cluster.service.running.parts import fixed_buckets
from cluster.service.running.settings import ClusterSettings
from cluster.spark.bucket_keys import first_key, partition_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.mark.parametrize(("buckets", "partitions"), [(4, 2), (6, 2), (8, 4), (3, 3), (4, 1), (1, 2)])
def test_partitions_get_equally_many_buckets(buckets: int, partitions: int) -> None:
    first = first_key(buckets, partitions)
    counts = Counter(partition_of(first + bucket, partitions) for bucket in range(buckets))
    assert max(counts.values()) == -(-buckets // partitions)


def test_the_first_keys_that_come_to_mind_are_not_divided_equally() -> None:
    assert Counter(partition_of(key, 2) for key in range(4)) == {1: 3, 0: 1}


@pytest.mark.spark
def test_partitions_are_those_of_spark(spark: SparkSession) -> None:
    found = spark.range(-50, 200).selectExpr("int(id)", "pmod(hash(int(id)), 7)").collect()
    assert [partition_of(key, 7) for key, _ in found] == [partition for _, partition in found]


def test_another_number_of_buckets_than_the_folder_has_is_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    registry = Registry(tmp_path / "new.sqlite", PlanFiles(tmp_path / "new"))
    fixed_buckets(registry, ClusterSettings())
    fixed_buckets(registry, ClusterSettings())
    assert "buckets" not in capsys.readouterr().out
    fixed_buckets(registry, ClusterSettings(buckets=8))
    printed = capsys.readouterr().out
    assert all(each in printed for each in ("other number of buckets", "asked=8", "here=4"))


def test_a_folder_keeps_the_keys_under_which_its_state_is(tmp_path: Path) -> None:
    new = Registry(tmp_path / "new.sqlite", PlanFiles(tmp_path / "new"))
    assert fixed_buckets(new, ClusterSettings()) == (4, 1)
    assert fixed_buckets(new, ClusterSettings(buckets=8, partitions=4)) == (4, 1)
    before_there_were_keys = Registry(tmp_path / "old.sqlite", PlanFiles(tmp_path / "old"))
    before_there_were_keys.fix("buckets", 4)
    assert fixed_buckets(before_there_were_keys, ClusterSettings()) == (4, 0)
