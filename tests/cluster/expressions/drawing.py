"""Random expressions, drawn as nodes: all that the dialect accepts, with constants and columns of every type."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import product

from cluster.expressions.nodes import (
    FALSE,
    NULL,
    TRUE,
    Among,
    Between,
    Binary,
    Call,
    Case,
    Cast,
    Column,
    Expression,
    Group,
    Like,
    Literal,
    Negative,
    Not,
    chain,
    grouped,
)
from protocols.wire.streams import FIELD_TYPES, FieldType
from tests.cluster.scalar_rows import SCALAR_ROWS

BOOLEAN, INTEGER, REAL, TEXT = FieldType.BOOLEAN, FieldType.INTEGER, FieldType.REAL, FieldType.TEXT
COLUMNS = {
    "i": INTEGER, "j": INTEGER, "r": REAL, "q": REAL, "s": TEXT, 't "quoted"': TEXT, "b": BOOLEAN, "größe": BOOLEAN,
}  # fmt: skip
CONSTANTS: dict[FieldType, tuple[str, ...]] = {
    INTEGER: ("0", "1", "2", "7", "9007199254740993", "9223372036854775807"),
    REAL: ("0.0", "0.50", "2.25", "1e3", "1e308", "5e-324", "1.7976931348623157e308"),
    TEXT: (
        "",
        "a",
        "Ab",
        " x ",
        "12",
        "a%b",
        "ü",
        "it's",
        "👩\u200d👧",
        "e\u0301",
        "nan",
        "1e400",
        "\n",
        '"',
        "true",
        '{"a": [12, "b", null], "ü": {"a": true}}',
    ),
    BOOLEAN: ("TRUE", "FALSE"),
}
PATTERNS = ("a%", "%b", "_", "%a_%", "", "%", "A.", "a[%", "%ß", "%'%", "👩%", "%\u0301")
COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")
NUMBERS = (INTEGER, REAL)
REGEXES = ("", "a", "^a|b$", r"\w+", r"(?i)[A-M]\W?", r"[^a-z]*?.", r"\b\S", r"\d{1,2}|\s", "é|(b(a|))", ".$")
PATHS = ("$", "$.a", "$.a[1]", "$.a[-1]", "$.ü", '$."ü".a')


class Drawing:
    """Draws expressions; some parts stand in several places.

    Parameters
    ----------
    dice
        Decides.
    depth
        Levels of operators, at most.
    """

    def __init__(self, dice: random.Random, depth: int = 3) -> None:
        self._dice = dice
        self._depth = depth
        self._drawn: dict[FieldType, list[Expression]] = {kind: [] for kind in FIELD_TYPES}

    def expression(self, kind: FieldType, depth: int | None = None) -> Expression:
        """Return an expression of a type."""
        left = self._depth if depth is None else depth
        if left <= 0 or self._dice.random() < 0.2:
            return self._leaf(kind)
        if self._drawn[kind] and self._dice.random() < 0.1:
            return self._dice.choice(self._drawn[kind])
        form = self._dice.choice(FORMS[kind])
        found = form(self, left - 1)
        self._drawn[kind].append(found)
        return found

    def of(self, kind: FieldType, depth: int) -> Expression:
        """Return an operand: in parentheses where it needs them, and sometimes where it does not."""
        found = self.expression(kind, depth)
        return Group(found) if self._dice.random() < 0.1 and not isinstance(found, Group) else grouped(found)

    def number(self, depth: int) -> Expression:
        """Return an operand that is an integer or a real."""
        return self.of(self._dice.choice(NUMBERS), depth)

    def any(self, depth: int) -> Expression:
        """Return an operand of any type."""
        return self.of(self._dice.choice(FIELD_TYPES), depth)

    def several(self, kind: FieldType, depth: int) -> tuple[Expression, ...]:
        """Return one operand to four."""
        return tuple(self.of(kind, depth) for _ in range(self._dice.randint(1, 4)))

    def branches(self, kind: FieldType, depth: int, *, subject: bool) -> Case:
        """Return CASE."""
        count = self._dice.randint(1, 3)
        compared = self._dice.choice((INTEGER, TEXT))
        conditions = tuple(self.of(compared if subject else BOOLEAN, depth) for _ in range(count))
        results = tuple(self.of(kind, depth) for _ in range(count))
        default = self.of(kind, depth) if self._dice.random() < 0.6 else None
        return Case(self.of(compared, depth) if subject else None, conditions, results, default)

    def sign(self) -> str:
        """Return a sign that compares."""
        return self._dice.choice(COMPARISONS)

    def pattern(self) -> str:
        """Return a pattern of LIKE."""
        return self._dice.choice(PATTERNS)

    def regex(self) -> Literal:
        """Return a regular expression."""
        return Literal(TEXT, self._dice.choice(REGEXES))

    def path(self) -> Literal:
        """Return a path into a JSON document."""
        return Literal(TEXT, self._dice.choice(PATHS))

    def _leaf(self, kind: FieldType) -> Expression:
        turn = self._dice.random()
        if turn < 0.6:
            return Column(self._dice.choice([name for name, each in COLUMNS.items() if each is kind]))
        if turn < 0.65:
            return Cast(NULL, kind)
        constant = Literal(kind, self._dice.choice(CONSTANTS[kind]))
        if kind is BOOLEAN:
            return TRUE if constant.text == "TRUE" else FALSE
        return Group(Negative(constant)) if kind in NUMBERS and self._dice.random() < 0.3 else constant


Form = Callable[[Drawing, int], Expression]


def _binary(sign: str, left: FieldType, right: FieldType) -> Form:
    return lambda drawing, depth: Binary(sign, drawing.of(left, depth), drawing.of(right, depth))


def _call(function: str, *kinds: FieldType) -> Form:
    return lambda drawing, depth: Call(function, tuple(drawing.of(kind, depth) for kind in kinds))


def _of_document(function: str) -> Form:
    return lambda drawing, depth: Call(function, (drawing.of(TEXT, depth), drawing.path()))


def _several(function: str, kind: FieldType) -> Form:
    return lambda drawing, depth: Call(function, drawing.several(kind, depth))


def _compared(operand: Form) -> Form:
    return lambda drawing, depth: Binary(drawing.sign(), operand(drawing, depth), operand(drawing, depth))


def _chain(word: str, kind: FieldType) -> Form:
    return lambda drawing, depth: chain(word, (drawing.of(kind, depth), *drawing.several(kind, depth)))


def _cast(kind: FieldType, target: FieldType, *, tries: bool = False) -> Form:
    return lambda drawing, depth: Cast(drawing.of(kind, depth), target, tries)


def _case(kind: FieldType, *, subject: bool) -> Form:
    return lambda drawing, depth: drawing.branches(kind, depth, subject=subject)


def _rows(gives: FieldType, *, exact: bool = True) -> tuple[Form, ...]:
    """Return calls of the functions that give a type, with arguments of all types that they take."""
    found = (row for row in SCALAR_ROWS if row.gives is gives and row.exact is exact)
    return tuple(_call(row.name, *kinds) for row in found for kinds in row.signatures)


def _everywhere(kind: FieldType) -> tuple[Form, ...]:
    """Return what gives any type that it is given."""
    return (
        _several("COALESCE", kind), _several("LEAST", kind), _several("GREATEST", kind), _call("NULLIF", kind, kind),
        _case(kind, subject=False), _case(kind, subject=True),
    )  # fmt: skip


FORMS: dict[FieldType, tuple[Form, ...]] = {
    INTEGER: (
        *(_binary(sign, INTEGER, INTEGER) for sign in "+-*%"),
        _call("ABS", INTEGER),
        *_rows(INTEGER),
        _call("STRPOS", TEXT, TEXT),
        *(_call(function, INTEGER) for function in ("ROUND", "TRUNC")),
        lambda drawing, depth: Negative(drawing.of(INTEGER, depth)),
        *(_cast(kind, INTEGER) for kind in FIELD_TYPES),
        *_everywhere(INTEGER),
    ),
    REAL: (
        *(_binary(sign, REAL, REAL) for sign in "+-*/%"),
        *(_binary(sign, REAL, INTEGER) for sign in "+-*%"),
        _binary("/", INTEGER, INTEGER),
        *(_call(function, REAL) for function in ("ABS", "FLOOR", "CEIL", "TRUNC")),
        *_rows(REAL),
        lambda drawing, depth: Negative(drawing.of(REAL, depth)),
        *(_cast(kind, REAL) for kind in (INTEGER, TEXT, REAL)),
        *_everywhere(REAL),
    ),
    TEXT: (
        _chain("||", TEXT),
        *(_call(function, TEXT) for function in ("UPPER", "LOWER", "TRIM", "LTRIM", "RTRIM")),
        *_rows(TEXT),
        *(_call(function, TEXT, TEXT) for function in ("TRIM", "LTRIM", "RTRIM")),
        _call("SUBSTRING", TEXT, INTEGER),
        _call("SUBSTRING", TEXT, INTEGER, INTEGER),
        *(_call(function, TEXT, INTEGER) for function in ("LEFT", "RIGHT", "LPAD", "RPAD")),
        *(_call(function, TEXT, INTEGER, TEXT) for function in ("LPAD", "RPAD")),
        _call("SPLIT_PART", TEXT, TEXT, INTEGER),
        _call("REPLACE", TEXT, TEXT, TEXT),
        lambda drawing, depth: Call("REGEXP_EXTRACT", (drawing.of(TEXT, depth), drawing.regex())),
        lambda drawing, depth: Call(
            "REGEXP_EXTRACT", (drawing.of(TEXT, depth), Literal(TEXT, r"(a)?(\w)"), Literal(INTEGER, "2"))
        ),
        lambda drawing, depth: Call(
            "REGEXP_REPLACE", (drawing.of(TEXT, depth), drawing.regex(), Literal(TEXT, r"<\0>"))
        ),
        *(_of_document(f"JSON_{name}") for name in ("VALUE", "QUERY", "EXTRACT", "EXTRACT_STRING")),
        _several("CONCAT", TEXT),
        *(_cast(kind, TEXT, tries=kind is TEXT) for kind in (INTEGER, TEXT, BOOLEAN)),
        *_everywhere(TEXT),
    ),
    BOOLEAN: (
        *(_compared(Drawing.number),) * 3,
        _compared(lambda drawing, depth: drawing.of(TEXT, depth)),
        _chain("AND", BOOLEAN),
        _chain("OR", BOOLEAN),
        lambda drawing, depth: Not(drawing.of(BOOLEAN, depth)),
        lambda drawing, depth: Binary("IS", drawing.any(depth), NULL),
        lambda drawing, depth: Binary("IS", drawing.of(BOOLEAN, depth), TRUE),
        lambda drawing, depth: Binary("IS", drawing.of(BOOLEAN, depth), FALSE),
        *(_binary(f"IS {no}DISTINCT FROM", kind, kind) for no in ("", "NOT ") for kind in (BOOLEAN, TEXT)),
        *(_binary("IS NOT DISTINCT FROM", *kinds) for kinds in product(NUMBERS, NUMBERS)),
        lambda drawing, depth: Among(drawing.number(depth), (drawing.number(depth), drawing.number(depth), NULL)),
        lambda drawing, depth: Among(drawing.of(TEXT, depth), drawing.several(TEXT, depth)),
        lambda drawing, depth: Between(drawing.number(depth), drawing.number(depth), drawing.number(depth)),
        lambda drawing, depth: Call("REGEXP_LIKE", (drawing.of(TEXT, depth), drawing.regex())),
        _of_document("JSON_EXISTS"),
        *_rows(BOOLEAN),
        lambda drawing, depth: Like(drawing.of(TEXT, depth), drawing.pattern()),
        lambda drawing, depth: Like(drawing.of(TEXT, depth), "a!%" + drawing.pattern(), "!"),
        lambda drawing, depth: Like(drawing.of(TEXT, depth), drawing.pattern(), None, folds=True),
        *(_cast(kind, BOOLEAN) for kind in (INTEGER, TEXT)),
        *_everywhere(BOOLEAN),
    ),
}  # fmt: skip
"""What can be written, by the type it gives."""


ROUGH: tuple[Form, ...] = (
    _call("ROUND", REAL),
    *_rows(REAL, exact=False),
    lambda drawing, depth: Call("ROUND", (drawing.of(REAL, depth), Literal(INTEGER, "1"))),
    lambda drawing, depth: Cast(Cast(drawing.of(REAL, depth), TEXT), REAL),
)
"""Reals of which not every digit is promised: nothing is made of them, since that might be another value altogether."""


def drawn(seed: str, depth: int = 3) -> tuple[Expression, FieldType, bool]:
    """Return a random expression, always the same of a seed, its type, and whether all its digits are promised."""
    dice = random.Random(seed)
    kind = dice.choice(FIELD_TYPES)
    drawing = Drawing(dice, depth)
    if kind is REAL and dice.random() < 0.3:
        return dice.choice(ROUGH)(drawing, depth - 1), kind, False
    return drawing.expression(kind), kind, True
