"""What a Spark session keeps in memory of finished work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark]

DONE = 60


def test_spark_keeps_few_finished_executions_and_jobs(spark: SparkSession) -> None:
    session: Any = spark
    for _ in range(DONE):
        session.range(1).collect()
    session.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    remembered = session._jsparkSession.sharedState().statusStore().executionsCount()
    jobs = session.sparkContext._jsc.sc().statusStore().jobsList(None).size()
    assert remembered < DONE / 2, "executions, with their plans"
    assert jobs < DONE
