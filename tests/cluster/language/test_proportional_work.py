"""Twice the text takes about twice the work: calls are counted, those of built-in functions too."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest

from cluster.language.errors import FjordSqlError
from cluster.language.translation import parse_statement, translate
from tests.cluster.language.example_catalog import CATALOG
from tests.counted_calls import calls

HOUR = "WINDOW(RANGE 1 HOUR)"
PIECES = 120
MOST_GROWTH = 2.1


def _listed(piece: str, count: int, between: str = ", ") -> str:
    return between.join(piece.format(each) for each in range(count))


TEXTS: dict[str, Callable[[int], str]] = {
    "names without AS": lambda n: "SELECT " + _listed("'x' a{}", n) + " FROM traffic",
    "names given to keys": lambda n: (
        f"SELECT {_listed('lane AS a{0}', n)} FROM traffic {HOUR} GROUP BY {_listed('a{}', n)}"
    ),
    "keys": lambda n: f"SELECT COUNT(*) AS cars FROM traffic {HOUR} GROUP BY {_listed('lane + {}', n)}",
    "selected keys": lambda n: (
        f"SELECT {_listed('lane + {}', n)} FROM traffic {HOUR} GROUP BY {_listed('lane + {}', n)}"
    ),
    "names in HAVING": lambda n: (
        f"SELECT {_listed('MAX(lane + {0}) AS a{0}', n)} FROM traffic {HOUR} HAVING {_listed('a{} > 1', n, ' AND ')}"
    ),
    "names of WITH": lambda n: f"WITH {_listed('a{} AS (SELECT lane FROM traffic)', n)} SELECT lane FROM a0",
    "operands of UNION": lambda n: _listed("SELECT lane FROM traffic WHERE lane = {}", n, " UNION ALL "),
    "columns of a stream": lambda n: f"CREATE STREAM x ({_listed('a{} REAL', n)}) SOURCE mqtt()",
    "conditions of a relation": lambda n: (
        f"CREATE RELATION x FROM 'x.csv' WHERE {_listed('a{} = 1', n, ' AND ')} REFRESH EVERY 1 HOUR"
    ),
    "never true": lambda n: f"SELECT lane FROM traffic WHERE {_listed('lane + {} = NULL', n, ' OR ')}",
    "what is not known": lambda n: f"SELECT lane FROM traffic WHERE {_listed('NOT lane ~ {}', n, ' AND ')}",
}


@pytest.mark.parametrize("kind", TEXTS)
def test_twice_the_text_takes_about_twice_the_work(kind):
    few, many = (_work(TEXTS[kind](count)) for count in (PIECES, 2 * PIECES))
    assert many < MOST_GROWTH * few


def _work(text: str) -> int:
    """Return how many calls it takes to understand a text, or to refuse it."""

    def understand() -> None:
        with contextlib.suppress(FjordSqlError):
            if text.startswith("CREATE"):
                parse_statement(text)
            else:
                translate(text, CATALOG)

    return calls(understand)
