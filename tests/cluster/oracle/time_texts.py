"""Random expressions about time, each as it is written and as DuckDB computes it (:mod:`.time_meaning`)."""

# ruff: noqa: E501 - a form is a line of the table

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from protocols.wire.streams import FieldType

TIMESTAMP, LOCAL, INTERVAL = FieldType.TIMESTAMP, FieldType.LOCAL_TIMESTAMP, FieldType.INTERVAL
INTEGER, REAL, TEXT, BOOLEAN = FieldType.INTEGER, FieldType.REAL, FieldType.TEXT, FieldType.BOOLEAN
KINDS = (TIMESTAMP, LOCAL, INTERVAL, INTEGER, REAL, TEXT, BOOLEAN)
INSTANTS = (TIMESTAMP, LOCAL)
UNITS = ("millisecond", "second", "minute", "hour", "day", "week", "month", "quarter", "year")
LENGTHS = {
    "MILLISECOND": 1000, "SECOND": 10**6, "MINUTE": 60 * 10**6, "HOUR": 3600 * 10**6, "DAY": 86_400 * 10**6,
    "WEEK": 604_800 * 10**6,
}  # fmt: skip
PARTS = ("YEAR", "QUARTER", "MONTH", "WEEK", "ISOYEAR", "DAY", "DOY", "DOW", "ISODOW", "HOUR", "MINUTE", "SECOND")
CALLED = {
    **{part: part for part in ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND")},
    "DAYOFYEAR": "DOY", "DAYOFMONTH": "DAY",
}  # fmt: skip
ZONES = (
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Asia/Kolkata",
    "Africa/Casablanca",
    "Pacific/Apia",
    "UTC",
)
LITERALS = (
    "2026-03-29 02:30:00+01:00", "2026-10-25T00:30:00Z", "1969-12-31 23:59:59.999999", "2024-02-29", "1600-02-29T12:00Z",
    "0001-01-01 00:00", "9999-12-31 23:59:59.999999", "1900-02-28 23:00-05", "2026-03-08 07:00:00.5",
)  # fmt: skip
DURATIONS = (
    ("'5' MINUTE", 300 * 10**6), ("90 SECONDS", 90 * 10**6), ("'1 hour 30 minutes'", 5400 * 10**6), ("'-2' DAYS", -172_800 * 10**6),
    ("'1.5' HOUR", 5400 * 10**6), ("1 US", 1), ("'36000 days'", 36_000 * 86_400 * 10**6), ("'1.1' SECOND", 1_100_000), ("'13343998 days 0.000001 seconds'", 13_343_998 * 86_400 * 10**6 + 1), ("'PT1H0.5S'", 3_600_500_000), ("0 WEEKS", 0),
    ("'1 12:30' DAY TO MINUTE", 131_400 * 10**6), ("'-12:30:05.25' HOUR TO SECOND", -45_005_250_000), ("'90:59' MINUTE TO SECOND", 5459 * 10**6),
)  # fmt: skip
PATTERNS = (
    ("STRFTIME", "%Y-%m-%d %H:%M:%S.%f", "%Y-%m-%d %H:%M:%S.%f"), ("STRFTIME", "%j|%a|%A|%b|%B|%I %p|%%", "%j|%a|%A|%b|%B|%I %p|%%"),
    ("STRFTIME", "%G-W%V-%u", "%G-W%V-%u"), ("STRFTIME", "%F %T", "%Y-%m-%d %H:%M:%S"),
    ("DATE_FORMAT", "yyyy-MM-dd''T''HH:mm:ss.SSSSSS", "%Y-%m-%dT%H:%M:%S.%f"), ("DATE_FORMAT", "EEE, dd MMM yyyy hh a, DDD 100%", "%a, %d %b %Y %I %p, %j 100%%"),
    ("DATE_FORMAT", "hh ''o''''clock'' a, ''''yyyy", "%I o''clock %p, ''%Y"), ("TO_CHAR", r'HH24 "say \"hi\"" \"DD\"', '%H say "hi" "%d"'),
    ("TO_CHAR", "YYYY-MM-DD HH24:MI:SS.US", "%Y-%m-%d %H:%M:%S.%f"), ("TO_CHAR", 'Dy DD Mon, HH12 AM "of day" DDD', "%a %d %b, %I %p of day %j"),
    ("TO_CHAR", "IYYY IW ID", "%G %V %u"),
)  # fmt: skip
READ = (
    ("dd.MM.yyyy HH:mm", r"\d\d\.\d\d\.\d{{4}} \d\d:\d\d", "%d.%m.%Y %H:%M"),
    ("yyyy-MM-dd", r"\d{{4}}-\d\d-\d\d", "%Y-%m-%d"),
    ("dd.MM.yyyy ''o''''clock'' HH:mm", r"\d\d\.\d\d\.\d{{4}} o''clock \d\d:\d\d", "%d.%m.%Y o''clock %H:%M"),
    ("yyyyMMdd''T''HHmmssSSSSSS", r"\d{{8}}T\d{{12}}", "%Y%m%dT%H%M%S%f"),
)
"""Patterns by which texts are read, regular expressions for these, and DuckDB's."""
COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")


@dataclass(frozen=True)
class Time:
    """An expression: its type, its text, and what it is in DuckDB."""

    kind: FieldType
    text: str
    sql: str


Form = Callable[["Drawing", int], Time]


class Drawing:
    """Draws expressions over the stamp and the columns i, r, s and b."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice

    def of(self, kind: FieldType, depth: int) -> Time:
        """Return an expression of a type, in parentheses."""
        found = self.expression(kind, depth)
        return Time(kind, f"({found.text})", f"({found.sql})")

    def expression(self, kind: FieldType, depth: int) -> Time:
        """Return an expression of a type."""
        forms = LEAVES[kind] if depth <= 0 or self.dice.random() < 0.15 else FORMS[kind]
        return self.dice.choice(forms)(self, depth - 1)

    def choice(self, several: tuple[str, ...]) -> str:
        """Return one of several."""
        return self.dice.choice(several)

    def instant(self, depth: int) -> Time:
        """Return a timestamp, local or not."""
        return self.of(self.dice.choice(INSTANTS), depth)


def _made(kind: FieldType, text: str, sql: str, *operands: Time) -> Time:
    texts, sqls = [each.text for each in operands], [each.sql for each in operands]
    return Time(kind, text.format(*texts), sql.format(*sqls))


def _form(kind: FieldType, text: str, sql: str, *kinds: FieldType) -> Form:
    return lambda drawing, depth: _made(kind, text, sql, *(drawing.of(each, depth) for each in kinds))


def _leaf(kind: FieldType, text: str, sql: str) -> Form:
    return lambda _drawing, _depth: Time(kind, text, sql)


def _literal(drawing: Drawing, _depth: int) -> Time:
    text = drawing.choice(LITERALS)
    return Time(TIMESTAMP, f"TIMESTAMP '{text}'", f"f_parsed('{text}')")


def _duration(drawing: Drawing, _depth: int) -> Time:
    text, size = drawing.dice.choice(DURATIONS)
    return Time(INTERVAL, f"INTERVAL {text}", f"({size})")


def _floor(kind: FieldType) -> Form:
    def form(drawing: Drawing, depth: int) -> Time:
        unit = drawing.choice(UNITS)
        word = unit.upper() if drawing.dice.random() < 0.5 else unit
        return _made(kind, f"DATE_TRUNC('{word}', {{0}})", f"f_floor('{unit}', {{0}})", drawing.of(kind, depth))

    return form


def _rounded(kind: FieldType) -> Form:
    def form(drawing: Drawing, depth: int) -> Time:
        unit = drawing.dice.choice([each for each in UNITS if each != "week"])
        if drawing.dice.random() < 0.5:
            return _made(kind, f"FLOOR({{0}} TO {unit.upper()})", f"f_floor('{unit}', {{0}})", drawing.of(kind, depth))
        name = drawing.choice(("CEIL", "CEILING"))
        return _made(kind, f"{name}({{0}} TO {unit.upper()})", f"f_ceil('{unit}', {{0}})", drawing.of(kind, depth))

    return form


def _added(kind: FieldType) -> Form:
    def form(drawing: Drawing, depth: int) -> Time:
        unit = drawing.choice(tuple(LENGTHS))
        sql = f"f_ts({{1}}::HUGEINT + f_iv({LENGTHS[unit]}::HUGEINT * {{0}}))"
        operands = drawing.of(INTEGER, depth), drawing.of(kind, depth)
        return _made(kind, f"TIMESTAMPADD({unit}, {{0}}, {{1}})", sql, *operands)

    return form


def _in_zone(drawing: Drawing, depth: int) -> Time:
    zone = drawing.choice(ZONES)
    return _made(LOCAL, f"{{0}} AT TIME ZONE '{zone}'", f"f_local({{0}}, '{zone}')", drawing.of(TIMESTAMP, depth))


def _of_zone(drawing: Drawing, depth: int) -> Time:
    zone = drawing.choice(ZONES)
    return _made(TIMESTAMP, f"{{0}} AT TIME ZONE '{zone}'", f"f_instant({{0}}, '{zone}')", drawing.of(LOCAL, depth))


def _part(drawing: Drawing, depth: int) -> Time:
    part = drawing.choice(PARTS)
    text = drawing.dice.choice([f"EXTRACT({part} FROM {{0}})", f"DATE_PART('{part.lower()}', {{0}})"])
    return _made(INTEGER, text, f"f_part('{part.lower()}', {{0}})", drawing.instant(depth))


def _called(drawing: Drawing, depth: int) -> Time:
    name = drawing.choice(tuple(CALLED))
    return _made(INTEGER, f"{name}({{0}})", f"f_part('{CALLED[name].lower()}', {{0}})", drawing.instant(depth))


def _steps(drawing: Drawing, depth: int) -> Time:
    kind, unit = drawing.dice.choice(INSTANTS), drawing.choice(UNITS)
    operands = drawing.of(kind, depth), drawing.of(kind, depth)
    return _made(INTEGER, f"DATE_DIFF('{unit}', {{0}}, {{1}})", f"f_steps('{unit}', {{0}}, {{1}})", *operands)


def _whole(drawing: Drawing, depth: int) -> Time:
    kind, unit = drawing.dice.choice(INSTANTS), drawing.choice(tuple(LENGTHS))
    operands = drawing.of(kind, depth), drawing.of(kind, depth)
    sql = f"CAST(sign({{1}} - {{0}}) * (abs({{1}} - {{0}}) // {LENGTHS[unit]}) AS BIGINT)"
    return _made(INTEGER, f"TIMESTAMPDIFF({unit}, {{0}}, {{1}})", sql, *operands)


def _formatted(drawing: Drawing, depth: int) -> Time:
    name, pattern, sql = drawing.dice.choice(PATTERNS)
    return _made(TEXT, f"{name}({{0}}, '{pattern}')", f"f_text({{0}}, '{sql}')", drawing.instant(depth))


def _parsed(drawing: Drawing, depth: int) -> Time:
    """Return a text as a timestamp: DuckDB reads more than ISO 8601, so it is given no other texts."""
    text = drawing.choice(
        ("CAST({0} AS TIMESTAMP)", "TRY_CAST({0} AS TIMESTAMP)", "{0}::TIMESTAMP", "TO_TIMESTAMP({0})")
    )
    if drawing.dice.random() < 0.3:
        pattern, regex, sql = drawing.dice.choice(READ)
        moved = f"CASE WHEN regexp_full_match({{0}}, '{regex}') THEN f_ts(epoch_us(TRY_STRPTIME({{0}}, '{sql}'))) END"
        return _made(TIMESTAMP, f"TO_TIMESTAMP({{0}}, '{pattern}')", moved, drawing.of(TEXT, depth))
    read = drawing.dice.choice((*LEAVES[TEXT], CAST_AS_TEXT))(drawing, depth)
    return _made(TIMESTAMP, text, "f_parsed({0})", Time(TEXT, f"({read.text})", f"({read.sql})"))


def _epoch(drawing: Drawing, depth: int) -> Time:
    operand = drawing.of(drawing.dice.choice((*INSTANTS, INTERVAL)), depth)
    return _made(REAL, "EXTRACT(EPOCH FROM {0})", "f_seconds({0})", operand)


def _compared(drawing: Drawing, depth: int) -> Time:
    kind, sign = drawing.dice.choice((*INSTANTS, INTERVAL)), drawing.choice(COMPARISONS)
    return _made(
        BOOLEAN, f"{{0}} {sign} {{1}}", f"{{0}} {sign} {{1}}", drawing.of(kind, depth), drawing.of(kind, depth)
    )


def _tested(drawing: Drawing, depth: int) -> Time:
    kind = drawing.dice.choice((*INSTANTS, INTERVAL))
    text = drawing.choice((
        "{0} BETWEEN {1} AND {2}", "{0} IN ({1}, {2})", "{0} IS NULL", "{0} IS NOT DISTINCT FROM {1}",
        "NOT {0} > {1}", "{0} IS DISTINCT FROM {2}",
    ))  # fmt: skip
    return _made(BOOLEAN, text, text, *(drawing.of(kind, depth) for _ in range(3)))


def _any(kind: FieldType) -> tuple[Form, ...]:
    """Return what gives any type that it is given."""
    listed = ("list_min([{0}, {1}])", "list_max([{0}, {1}])")
    return (
        _form(kind, "CASE WHEN {2} THEN {0} ELSE {1} END", "CASE WHEN {2} THEN {0} ELSE {1} END", kind, kind, BOOLEAN),
        _form(kind, "COALESCE({0}, {1})", "coalesce({0}, {1})", kind, kind),
        _form(kind, "NULLIF({0}, {1})", "nullif({0}, {1})", kind, kind),
        _form(kind, "LEAST({0}, {1})", listed[0], kind, kind),
        _form(kind, "GREATEST({0}, {1})", listed[1], kind, kind),
    )


def _sums(kind: FieldType) -> tuple[Form, ...]:
    return (
        _form(kind, "{0} + {1}", "f_ts({0}::HUGEINT + {1})", kind, INTERVAL),
        _form(kind, "{1} + {0}", "f_ts({0}::HUGEINT + {1})", kind, INTERVAL),
        _form(kind, "{0} - {1}", "f_ts({0}::HUGEINT - {1})", kind, INTERVAL),
    )


CAST_AS_TEXT = _form(TEXT, "CAST({0} AS TEXT)", "f_text({0}, '%Y-%m-%dT%H:%M:%S.%fZ')", TIMESTAMP)
LEAVES: dict[FieldType, tuple[Form, ...]] = {
    TIMESTAMP: (_leaf(TIMESTAMP, "STAMP()", "us"), _leaf(TIMESTAMP, "STAMP(e)", "us"), _literal),
    LOCAL: (
        _leaf(LOCAL, "STAMP() AT TIME ZONE 'UTC'", "us"),
        _leaf(LOCAL, "NULL AT TIME ZONE 'UTC'", "NULL::BIGINT"),
    ),
    INTERVAL: (_duration,),
    INTEGER: (
        _leaf(INTEGER, "i", "i"),
        _leaf(INTEGER, "7", "7"),
        _leaf(INTEGER, "HOUR(NULL)", "NULL::BIGINT"),
        _leaf(INTEGER, "EXTRACT(DAY FROM NULL)", "NULL::BIGINT"),
    ),
    REAL: (_leaf(REAL, "r", "r"), _leaf(REAL, "0.5", "0.5::DOUBLE")),
    TEXT: (_leaf(TEXT, "s", "s"), _leaf(TEXT, "'2026-03-29T01:30:00Z'", "'2026-03-29T01:30:00Z'")),
    BOOLEAN: (_leaf(BOOLEAN, "b", "b"),),
}
FORMS: dict[FieldType, tuple[Form, ...]] = {
    TIMESTAMP: (
        *LEAVES[TIMESTAMP], *_sums(TIMESTAMP), *_any(TIMESTAMP), _floor(TIMESTAMP), _floor(TIMESTAMP), _of_zone, _of_zone,
        _rounded(TIMESTAMP), _added(TIMESTAMP),
        _form(TIMESTAMP, "TIMESTAMP_MICROS({0})", "f_ts({0})", INTEGER),
        _form(TIMESTAMP, "TIMESTAMP_MILLIS({0})", "f_ts({0}::HUGEINT * 1000)", INTEGER),
        _form(TIMESTAMP, "TIMESTAMP_SECONDS({0})", "f_ts({0}::HUGEINT * 1000000)", INTEGER),
        _parsed, _parsed,
    ),
    LOCAL: (*_sums(LOCAL), *_any(LOCAL), _floor(LOCAL), _rounded(LOCAL), _added(LOCAL), _in_zone, _in_zone, _in_zone),
    INTERVAL: (
        _duration, *_any(INTERVAL),
        *(_form(INTERVAL, "{0} - {1}", "({0} - {1})", kind, kind) for kind in INSTANTS),
        _form(INTERVAL, "{0} + {1}", "f_iv({0}::HUGEINT + {1})", INTERVAL, INTERVAL),
        _form(INTERVAL, "{0} - {1}", "f_iv({0}::HUGEINT - {1})", INTERVAL, INTERVAL),
        _form(INTERVAL, "-{0}", "(-{0})", INTERVAL),
        _form(INTERVAL, "{0} * {1}", "f_iv({0}::HUGEINT * {1})", INTERVAL, INTEGER),
        _form(INTERVAL, "{1} * {0}", "f_iv({0}::HUGEINT * {1})", INTERVAL, INTEGER),
        _form(INTERVAL, "{0} * {1}", "f_times({0}, {1})", INTERVAL, REAL),
        _form(INTERVAL, "{0} / {1}", "f_parts({0}, {1})", INTERVAL, REAL),
        _form(INTERVAL, "{0} / {1}", "f_whole_parts({0}, {1})", INTERVAL, INTEGER),
    ),
    INTEGER: (_part, _part, _called, _called, _steps, _steps, _whole, *LEAVES[INTEGER]),
    REAL: (_epoch, _epoch, *LEAVES[REAL]),
    TEXT: (
        _formatted, _formatted, *LEAVES[TEXT],
        CAST_AS_TEXT,
        _form(TEXT, "CAST({0} AS TEXT)", "f_text({0}, '%Y-%m-%dT%H:%M:%S.%f')", LOCAL),
        _form(TEXT, "CAST({0} AS TEXT)", "f_duration({0})", INTERVAL),
        _form(TEXT, "CONCAT({0}, '|', {1})", "coalesce(f_text({0}, '%Y-%m-%dT%H:%M:%S.%fZ'), '') || '|' || coalesce({1}, '')", TIMESTAMP, TEXT),
    ),
    BOOLEAN: (_compared, _compared, _tested, _tested, *LEAVES[BOOLEAN]),
}  # fmt: skip
SHOWN = {
    TIMESTAMP: "f_text({0}, '%Y-%m-%dT%H:%M:%S.%fZ')", LOCAL: "f_text({0}, '%Y-%m-%dT%H:%M:%S.%f')",
    INTERVAL: "f_duration({0})",
}  # fmt: skip


def shown(time: Time) -> str:
    """Return what results have of an expression, in DuckDB."""
    return SHOWN.get(time.kind, "{0}").format(time.sql)
