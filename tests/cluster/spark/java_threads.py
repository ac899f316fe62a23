"""What threads of Java's do that have no session of Spark's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def threads_write_java(spark: SparkSession) -> bool:
    """Return whether they write and compile Java for a few rows."""
    session: Any = spark
    java = session._jvm.org.apache.spark.sql
    java.classic.SparkSession.clearActiveSession()  # of the thread that answers here
    try:
        return bool(java.internal.SQLConf.get().codegenFactoryMode().toString() != "NO_CODEGEN")
    finally:
        java.classic.SparkSession.setActiveSession(session._jsparkSession)
