"""How the process ends in which Spark keeps a source, once Java has gone.

PySpark tries to tell Java of the error that there is no Java, fails, tries again, and prints three tracebacks: on every
Ctrl-C that comes while a micro-batch is planned, into the terminal or the log of whoever ended the cluster.
"""

from __future__ import annotations

import sys
from types import TracebackType

RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"
"""The module that Java runs in such a process."""


def end_quietly_without_java() -> None:
    """Let this process end without a word when Java has gone, if it is one of Spark's for a source."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is None or spec.name != RUNNER:
        return
    show = sys.excepthook

    def show_others(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not issubclass(kind, BrokenPipeError | ConnectionResetError):
            show(kind, error, trace)

    sys.excepthook = show_others
