"""The words of FjordSQL for hints: which ones fit where, what follows them, how clauses are written; and foreign words.

For hints only: the parser decides what the language accepts.
"""

from __future__ import annotations

from cluster.language.stream_item import ITEM_CLAUSES
from cluster.language.syntax import CLAUSE, CLAUSE_SHAPE, KEEP_SHAPE

WINDOW_SHAPES = "WINDOW(RANGE 5 MINUTES SLIDE 1 MINUTE), WINDOW(ROWS 10) or WINDOW(PARTITION BY a ROWS 10)"
SESSION_SHAPE = "WINDOW(SESSION GAP 5 MINUTES PARTITION BY a)"
RESET_SHAPE = "WINDOW(RESET EVERY 1 DAY AT TIME ZONE 'Europe/Berlin' SLIDE 1 MINUTE)"
ZONE_SHAPE = "AT TIME ZONE 'Europe/Berlin'"
EVENTS_SHAPE = "EVENTS(level ABOVE 0.6 BELOW 0.4)"
OVER_ELSEWHERE = (
    "a function with OVER can stand in SELECT and QUALIFY only",
    "compute it in FROM (SELECT ...) AS x, or choose tuples by it with QUALIFY",
)
LAG_SHAPE = "LAG(x) OVER (PARTITION BY k ORDER BY STAMP())"
FRAME_SHAPES = (
    "ROWS BETWEEN 9 PRECEDING AND CURRENT ROW, RANGE BETWEEN 5 MINUTES PRECEDING AND CURRENT ROW, "
    "or with UNBOUNDED PRECEDING before AND, 1 PRECEDING or 1 MINUTE PRECEDING behind it"
)
HYSTERESIS_SHAPE = "HYSTERESIS(speed ABOVE 60 BELOW 50) OVER (PARTITION BY sensor)"
SAMPLE_SHAPE = "SAMPLE EVERY 10 SECONDS or SAMPLE RATE 10 HZ"
SINCE_SHAPE = "FROM traffic SINCE 2 HOURS AGO or SINCE BEGINNING"
USING_SHAPE = "FROM a JOIN b USING (x), where both have a column x"
NEAR_SHAPE = "a JOIN b WITHIN 5 MINUTES ON a.x = b.x"
ASOF_SHAPE = "a ASOF [LEFT] JOIN b WITHIN 5 MINUTES ON a.x = b.x"
ZIP_SHAPE = "a ZIP JOIN b WITHIN 50 MILLISECONDS ON a.pair = b.pair"
WITH_SHAPE = "WITH name AS (SELECT ...) SELECT ..."
CASE_SHAPE = "CASE WHEN condition THEN value ELSE value END"
BETWEEN_SHAPE = "x BETWEEN low AND high"
CAST_SHAPE = "CAST(x AS type)"
TUMBLING = "a tumbling window is written {}WINDOW(RANGE 1 MINUTE SLIDE 1 MINUTE)"
HOPPING = "a hopping window is written {}WINDOW(RANGE 1 HOUR SLIDE 1 MINUTE)"
LAST_TUPLES = "use a window, WINDOW(ROWS n), for the last n tuples"
GROUPING_SHAPES = "GROUP BY ROLLUP(a, b), GROUP BY CUBE(a, b) or GROUP BY GROUPING SETS ((a, b), (a), ())"
MISPLACED_WINDOW = (
    "a window belongs to a stream in FROM, directly after its name or alias",
    "FROM stream WINDOW(RANGE 5 MINUTES)",
)
TOP_SHAPE = "SELECT ... FROM ... ORDER BY speed DESC LIMIT 10"
DISTINCT_ON = (
    "DISTINCT ON is not part of FjordSQL",
    "the first row of each a is QUALIFY ROW_NUMBER() OVER (PARTITION BY a ORDER BY b) = 1",
)
OVER_SHAPE = "{}() OVER (PARTITION BY sensor ORDER BY speed DESC)"
NO_BITS = "integers have no bits here: FLOOR(x / 8) % 2 = 1 is the fourth one of a positive integer"
QUOTES = "texts go into single quotes, names that need any into double ones"

CALLED_CLAUSES = {
    "WINDOW": WINDOW_SHAPES,
    **{each.word: each.example for each in ITEM_CLAUSES},
    "EVENTS": EVENTS_SHAPE,
    CLAUSE: CLAUSE_SHAPE,
}
"""Clauses of FROM that are written like calls."""

BEFORE_OPERANDS = (
    *("NOT", "CASE", "WHEN", "EXISTS", "ALL", "ANY", "DISTINCT", "NULL", "TRUE", "FALSE", "SELECT"),
)  # fmt: skip
"""Words that stand where an operand, or a query, begins."""

_AFTER_OPERANDS = (
    "AND",
    "OR",
    "NOT",
    "IN",
    "LIKE",
    "ILIKE",
    "SIMILAR TO",
    "RLIKE",
    "REGEXP",
    "BETWEEN",
    "IS",
    "ESCAPE",
    "WHEN",
    "THEN",
    "ELSE",
    "END",
)
_AT_THE_END = (
    "ORDER BY",
    "LIMIT",
    "OFFSET",
    "FETCH",
    "UNION",
    "EXCEPT",
    "INTERSECT",
    "SAMPLE",
    "EVERY",
    "RATE",
    "LEAST",
    "LIFETIME",
)
_OF_FROM = (
    *("WHERE", "GROUP BY", "HAVING", "QUALIFY", "WINDOW"),
    *(each.word for each in ITEM_CLAUSES),
    *("EVENTS", "SINCE", "BEGINNING", "AGO"),
    *("JOIN", "LEFT", CLAUSE),
    *("RIGHT", "INNER", "CROSS", "FULL", "ZIP", "ASOF", "WITHIN", "ON", "USING", "AS", *_AT_THE_END),
)
AFTER_OPERANDS: dict[str, tuple[str, ...]] = {
    "SELECT": ("FROM", "AS", *_AFTER_OPERANDS),
    "FROM": _OF_FROM,
    "ON": (*_AFTER_OPERANDS, *_OF_FROM),
    "WHERE": (*_AFTER_OPERANDS, "GROUP BY", "HAVING", "QUALIFY", *_AT_THE_END),
    "GROUP BY": (*_AFTER_OPERANDS, "HAVING", "QUALIFY", *_AT_THE_END),
    "HAVING": (*_AFTER_OPERANDS, "QUALIFY", *_AT_THE_END),
    "QUALIFY": (*_AFTER_OPERANDS, *_AT_THE_END),
    "WITH": ("AS",),
    "(": (*_AFTER_OPERANDS, "AS", "FROM", "RETURNING"),
    "CREATE STREAM": ("AS", "SOURCE", "ORDERED"),
    "CREATE FUNCTION": ("RETURNS", "LANGUAGE", "STRICT", "CALLED", "NULL", "ON", "INPUT", "AS"),
    "CREATE RELATION": ("FROM", "TABLE", "QUERY", "WHERE", "REFRESH", "EVERY", "STALE", "AFTER"),
}
"""By clause (or the parentheses of a call or a list): words that fit after a name, a value or a column."""

FOLLOWED: dict[str, tuple[tuple[str, ...], str, str]] = {
    "GROUP": (("BY",), "BY", "GROUP BY column"),
    "PARTITION": (("BY",), "BY", "WINDOW(PARTITION BY a ROWS 10)"),
    "SAMPLE": (("EVERY", "RATE"), "EVERY or RATE", SAMPLE_SHAPE),
    "SINCE": (("BEGINNING",), "a duration or BEGINNING", SINCE_SHAPE),
    "ZIP": (("JOIN",), "JOIN", ZIP_SHAPE),
    "ASOF": (("JOIN", "LEFT"), "JOIN or LEFT JOIN", ASOF_SHAPE),
    "AT": (("LEAST",), "LEAST", "SAMPLE EVERY 30 SECONDS AT LEAST EVERY 5 MINUTES"),
    "KEEP": ((), "a number of tuples", KEEP_SHAPE),
    "LIFETIME": ((), "a duration", "SELECT ... FROM ... LIFETIME 90 DAYS"),
    "EVENTS": ((), "an opening parenthesis", EVENTS_SHAPE),
    CLAUSE: ((), "an opening parenthesis", CLAUSE_SHAPE),
    **{each.word: ((), "an opening parenthesis", each.example) for each in ITEM_CLAUSES},
}
"""Words that are names unless something follows: that, in words too, and the way to write it."""

EXPECTED_SHAPES: dict[str, str] = {"AS": CAST_SHAPE, "END": CASE_SHAPE, "WHEN": CASE_SHAPE, "AND": BETWEEN_SHAPE}
"""By word: the way to write what has to follow it."""

LANGUAGE = frozenset((
    *(word for words in AFTER_OPERANDS.values() for phrase in words for word in phrase.split()),
    *BEFORE_OPERANDS, *FOLLOWED, *CALLED_CLAUSES, *(word for each in ITEM_CLAUSES for word in each.words),
    *("MEASURES", "ONE", "ROW", "PER", "MATCH", "AFTER", "SKIP", "PAST", "NEXT", "FIRST", "LAST", "PREV", "PATTERN"),
    *("INTERVAL", "DEFINE", "ORDER", "STAMP", "NOW", "EPOCH"),
    *("RANGE", "ROWS", "SLIDE", "SLIDES", "UNBOUNDED", "PARTITION", "WITH", "BY", "ABOVE"),
    *("BELOW", "CREATE", "DROP", "STREAM", "RELATION", "UNIT", "FIXED", "TO", "MIN", "MAX", "ISTREAM", "DSTREAM"),
    *("RSTREAM", "FILTER", "ASC", "DESC", "NULLS", "FIRST", "LAST", "NEXT", "ROW", "ONLY", "OVER", "ORDER"),
    *("GROUPING", "SETS", "ROLLUP", "CUBE", "ROW_NUMBER", "RANK", "DENSE_RANK"),
    *("SESSION", "GAP", "EARLY", "RESET", "OFFSET", "TIME", "ZONE"),
    "FUNCTION",
    *("VALID", "UNTIL", "NEXT", "DURATION", "ALLEN", "COALESCE", "TOLERANCE", "WHILE", "OVERLAPS", "CONTAINS"),
    *("KEEP", "TUPLES"),
    *("DURING", "EQUALS", "BEFORE", "AFTER", "MEETS", "STARTS", "FINISHES"),
    *("SYMMETRIC", "ASYMMETRIC", "ALL", "TO", "BOTH", "LEADING", "TRAILING", "POSITION"),
    *("QUALIFY", "PRECEDING", "CURRENT", "IGNORE", "HYSTERESIS"),
))  # fmt: skip
"""Every word; none of them counts as a misspelling of another."""

OF_WINDOWS = ("RANGE", "ROWS", "SLIDE", "SLIDES", "GAP", "RESET", "OFFSET")
"""Words in the parentheses of a window."""

FOREIGN_CLAUSES: dict[str, str | None] = {
    "EPOCH": "write SAMPLE EVERY 10 SECONDS, or SAMPLE RATE 10 HZ",
    "EMIT": "EMIT EARLY or EMIT FINAL stands at the end of a query",
    "TOP": f"write {TOP_SHAPE}",
    "TUMBLING": TUMBLING.format("FROM stream "),
    "HOPPING": HOPPING.format("FROM stream "),
    "SESSION": f"a window of sessions is written FROM stream {SESSION_SHAPE}",
    "PREWHERE": "write WHERE",
    "TABLESAMPLE": f"write {SAMPLE_SHAPE}",
    "MINUS": "write EXCEPT",
    "NATURAL": USING_SHAPE,
    "FOR": f"what held at a stamp: write {ASOF_SHAPE}; a relation is joined as it was at each tuple's stamp anyway",
    "PARTITION BY": "rows of an answer are in no partitions: leave it out",
    "GRACE": "leave it out: watermarks decide until when a tuple is in time",
    "WHEN": "choose tuples first, FROM (SELECT ... WHERE condition) AS x, or afterwards with QUALIFY",
}
"""Words that begin clauses in other databases, and what to write here."""

_CHANGED_ELSEWHERE = "streams are fed by sensors, and relations change where they come from"
_LISTED_ELSEWHERE = "`fjord stream list` and `fjord relation list` show what there is"
FOREIGN_STATEMENTS: dict[str, str] = {
    **dict.fromkeys(("INSERT", "UPDATE", "DELETE", "MERGE", "TRUNCATE", "COPY", "LOAD"), _CHANGED_ELSEWHERE),
    **dict.fromkeys(("SHOW", "LIST", "DESCRIBE", "DESC"), _LISTED_ELSEWHERE),
    "EXPLAIN": "`fjord query explain 'SELECT ...'` shows what a query means and how it would run",
    "ALTER": "drop it, and create it as it should be",
    "FROM": "SELECT ... FROM stream",
    "TABLE": "SELECT * FROM stream",
    "VALUES": "rows come from streams and relations: SELECT ... FROM stream",
}
"""Beginnings of statements of other databases, and what to do instead."""

_EQUAL_OR_NULL = "write a IS NOT DISTINCT FROM b"
ALIAS_EXPECTED = "an alias was expected after AS"
UNQUOTED = "a name has no quotes, or double ones"

FOREIGN_OPERATORS: dict[str, str] = {
    "&&": "write AND",
    "!": "write NOT",
    "=<": "write <=",
    "=>": "write >=",
    "><": "write <>",
    **dict.fromkeys(("^", "**"), "write POWER(a, b)"),
    **dict.fromkeys(("//", "DIV"), "write FLOOR(a / b)"),
    **dict.fromkeys(("&", "|", "<<", ">>"), NO_BITS),
    "GLOB": "write LIKE, or ~ with a regular expression",
    "OVERLAPS": "write a.since < b.until AND b.since < a.until",
    "[": f"a window is written {WINDOW_SHAPES}",
    "<=>": _EQUAL_OR_NULL,
    **dict.fromkeys(("#>", "#>>"), "write text -> 'key' ->> 0, or JSON_VALUE(text, '$.key[0]')"),
}
"""Operators of other databases, and what to write here."""

FOREIGN_QUOTES = frozenset("`\u00b4\u2018\u2019\u201c\u201d")
"""Characters that look like quotes, or are quotes in other databases."""
