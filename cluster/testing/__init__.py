"""For tests of your own queries: scripted streams and relations, a clock that stands still.

docs/how-to/try-and-test-queries.md shows how.

>>> from cluster.testing import EOF, ScriptedSource, answers
>>> traffic = ScriptedSource({"speed": float}, [("2012-03-01T07:00", {"speed": 30.0}), EOF()])
>>> for answer in answers("SELECT speed * 1.6 AS kmh FROM traffic", {"traffic": traffic}):
...     print(answer.start, answer.row)
1330585200000000 {'kmh': 48.0}
"""

from cluster.testing.query_run import Answer, FakeClock, QueryFailedError, QueryRun, answers
from cluster.testing.sources import ABORT, EOF, PAUSE, WATERMARK, ScriptedRelation, ScriptedSource, ScriptError

__all__ = [
    "ABORT",
    "EOF",
    "PAUSE",
    "WATERMARK",
    "Answer",
    "FakeClock",
    "QueryFailedError",
    "QueryRun",
    "ScriptError",
    "ScriptedRelation",
    "ScriptedSource",
    "answers",
]
