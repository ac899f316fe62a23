"""Random expressions over the columns that a place in a text offers."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from protocols.wire.streams import FieldType
from tests.cluster.oracle import text_spelling as spelling
from tests.cluster.oracle.text_choices import CHOICES, NULL_SHARE, TESTS
from tests.cluster.oracle.text_expressions import Binding, Exactness, Scalar, Words
from tests.cluster.oracle.text_leaves import Leaf, Turns
from tests.cluster.oracle.text_operations import BOOLEAN, INTEGER, OPERATIONS, REAL, SQL_TYPES, TEXT, Operation
from tests.cluster.oracle.text_world import LARGEST, WILD

KINDS = (BOOLEAN, INTEGER, REAL, TEXT)
PARENTHESES_SHARE = 0.06

_BY_RESULT: dict[FieldType, dict[str, list[Operation]]] = defaultdict(lambda: defaultdict(list))
for _each in OPERATIONS:
    _BY_RESULT[_each.result][_each.name].append(_each)

STYLES = (
    *(("column", n) for n in range(4)),
    *((each, n) for each in ("literal", "computed") for n in range(3)),
    ("null", 0),
)
"""What arguments are: all have their turns."""
NEARLY = {each.name for each in OPERATIONS if each.exactness is Exactness.NEARLY}
PLAIN_STYLES = (*(("column", n) for n in range(7)), ("literal", 0), ("literal", 1), ("computed", 0))
TESTS_OF_COLUMNS = (
    "=",
    "<>",
    "<",
    "<=",
    ">",
    ">=",
    "IN",
    "BETWEEN",
    "LIKE",
    "IS NULL",
    "IS NOT NULL",
    "AND",
    "OR",
    "NOT",
)


class Scalars:
    """Draws expressions.

    Parameters
    ----------
    dice
        All randomness.
    leaves
        By type: what draws a column, a key or an aggregate.
    turns
        How often what has been drawn, in this text and those before it: what was seldom drawn is drawn more often.
    wild
        True to take the oddest literals, too.
    plain
        True for expressions that are little more than columns.
    """

    def __init__(
        self, dice: random.Random, leaves: dict[FieldType, list[Leaf]], turns: Turns, *, wild: bool = False,
        plain: bool = False,
    ) -> None:  # fmt: skip
        self.dice = dice
        self.turns = turns
        self._leaves = leaves
        self._wild = wild
        self._plain = plain

    @property
    def kinds(self) -> list[FieldType]:
        """The types of which there are leaves."""
        return [kind for kind in KINDS if self._leaves.get(kind)]

    def value(self, kind: FieldType, depth: int = 2, need: Exactness = Exactness.NEARLY) -> Scalar:
        """Return an expression of a type, at least as exact as needed."""
        if depth > 0 and self.dice.random() < (0.15 if self._plain else 0.55):
            found = self._computed(kind, depth, nearly=need is Exactness.NEARLY)
            if found.exactness >= need:
                return self._in_parentheses(found)
        return self._in_parentheses(self.leaf(kind, need))

    def condition(self, depth: int = 2) -> Scalar:
        """Return a condition, more often a comparison of columns than a constant."""
        if self._leaves.get(BOOLEAN) and self.dice.random() < 0.2:
            return self.leaf(BOOLEAN, Exactness.SAME)
        return self._in_parentheses(self._computed(BOOLEAN, depth))

    def leaf(self, kind: FieldType, need: Exactness = Exactness.NEARLY) -> Scalar:
        """Return a column or a literal."""
        leaves = self._leaves.get(kind)
        if leaves and self.dice.random() < (0.93 if self._plain else 0.75):
            found = self.dice.choice(leaves)(need)
            if found.exactness >= need:
                return found
        return self.literal(kind)

    def literal(self, kind: FieldType) -> Scalar:
        """Return a literal."""
        dice = self.dice
        wild = self._wild and dice.random() < 0.5
        if kind is BOOLEAN:
            word = dice.choice(("TRUE", "FALSE"))
            return Scalar(kind, (word,), (word,))
        if kind is TEXT:
            pool = [each for each in WILD[TEXT] if each is not None] if wild else ["x", "y", "", "xy", "1", "p", '"']
            quoted = spelling.text(dice.choice(pool))
            return Scalar(kind, (quoted,), (quoted,), wild=wild)
        if kind is INTEGER:
            number = (
                dice.choice((LARGEST, 2**53 + 1, 2**32, -LARGEST, 100)) if wild else dice.choice((0, 1, 2, 3, -1, 7))
            )
            sign = Binding.SIGN if number < 0 else Binding.ATOM
            return Scalar(kind, (str(number),), (f"({number})::BIGINT",), binding=sign, wild=wild)
        if wild:
            number = dice.choice(("1e308", "1e-300", "5e-324", "0.1", "9007199254740993.0", "1e16", "123456.789"))
            return Scalar(kind, (number,), (f"{number}::DOUBLE",), wild=True, exactness=Exactness.SAME)
        number = dice.choice(("0.5", "1.5", "0.0", "2.0", ".25", "1.", "25e-1", "1E1", "0.1"))
        kept = Exactness.SAME if number == "0.1" else Exactness.EVEN
        # Behind some words the parser takes a dot for that of a name.
        alone = int(number.startswith("."))
        return Scalar(kind, (number,), (f"{number}::DOUBLE",), exactness=kept, parentheses=alone)

    def null(self, kind: FieldType) -> Scalar:
        """Return a NULL without a type where one is expected: a bare one, or what a function makes of it."""
        bare = Scalar(None, ("NULL",), (f"CAST(NULL AS {SQL_TYPES[kind]})",))
        if self.dice.random() < 0.6:
            return bare
        made = [each for each in OPERATIONS if each.result is kind and each.typed_by and set(each.takes) == {kind}]
        operation = self.turns.choose(self.dice, made, "null")
        parts = [bare if place in operation.typed_by else self.literal(kind) for place in range(len(operation.takes))]
        text, binding = self.dice.choice(operation.spellings)
        found = self.built(operation.name, kind, (text, binding), operation.sql, parts, operation)
        return replace(found, type=None)

    def subject(self, kind: FieldType, depth: int) -> Scalar:
        """Return what is compared with others; seldom NULL."""
        if self.dice.random() < NULL_SHARE:
            return self.null(kind)
        return self.argument(kind, depth, Exactness.SAME, "subject")

    def of(self, operation: Operation, depth: int) -> Scalar:
        """Return an operation on random arguments."""
        need = Exactness.NEARLY if operation.smooth else Exactness.SAME
        parts: list[Scalar] = []
        for place, kind in enumerate(operation.takes):
            typing = {each for n, each in enumerate(operation.takes) if n in operation.typed_by and n != place}
            free = place not in operation.typed_by or typing == {operation.result}
            null = free and not any(part.type is None for part in parts)
            parts.append(self.argument(kind, depth - 1, need, (operation.name, place, kind), null=null))
        text, binding = self.turns.choose(self.dice, operation.spellings, "spelling")
        parts = [
            replace(part, parentheses=1) if part.type is None and self.dice.random() < 0.1 else part for part in parts
        ]
        return self.built(operation.name, operation.result, (text, binding), operation.sql, parts, operation)

    def built(
        self, label: str, kind: FieldType, written: tuple[Words, Binding], sql: Words, parts: Sequence[Scalar],
        operation: Operation | None = None,
    ) -> Scalar:  # fmt: skip
        """Return an expression with its label, and how exact it is."""
        most = operation.exactness if operation else Exactness.EVEN
        numbers = [part.exactness for part in parts if part.type in (INTEGER, REAL)]
        exactness = min([most, *numbers]) if kind in (INTEGER, REAL) else Exactness.EVEN
        huge = label in ("EXP", "POWER") or any(part.wild for part in parts)
        types = ", ".join("null" if part.type is None else part.type.value for part in parts)
        return Scalar(
            kind, written[0], sql, tuple(parts), written[1], f"{label}({types})", exactness,
            wild=huge and not (operation and operation.tame),
        )  # fmt: skip

    def argument(
        self, kind: FieldType, depth: int, need: Exactness, of: object, *, null: bool = False
    ) -> Scalar:  # fmt: skip
        """Return an argument: a column, a literal, something computed or perhaps NULL, each in its turn."""
        style, _ = self.dice.choice(PLAIN_STYLES) if self._plain else self.turns.choose(self.dice, STYLES, of)
        if style == "null" and null:
            return self._in_parentheses(self.null(kind))
        # Conditions are seldom arguments as it is.
        if style == "computed" and (depth > 0 or kind is BOOLEAN or self.dice.random() < 0.3):
            found = self._computed(kind, depth)
            # What is huge and not exact may be infinite here and not there.
            if found.exactness >= need and not (found.exactness is Exactness.NEARLY and found.wild):
                return self._in_parentheses(found)
        leaves = self._leaves.get(kind)
        if style != "literal" and leaves:
            found = self.dice.choice(leaves)(need)
            if found.exactness >= max(need, Exactness.SAME):
                return self._in_parentheses(found)
        return self._in_parentheses(self.literal(kind))

    def _in_parentheses(self, scalar: Scalar) -> Scalar:
        if self.dice.random() >= PARENTHESES_SHARE or scalar.parentheses:
            return scalar
        return replace(scalar, parentheses=self.dice.choice((1, 1, 2)))

    def _computed(self, kind: FieldType, depth: int, *, nearly: bool = False) -> Scalar:
        """Return something computed; `nearly` where it may be one of the functions whose last digits differ."""
        special = {**CHOICES, **TESTS} if kind is BOOLEAN else CHOICES
        names = TESTS_OF_COLUMNS if self._plain and kind is BOOLEAN else [*_BY_RESULT[kind], *special]
        usable = [name for name in names if nearly or name not in NEARLY]
        name = self.turns.choose(self.dice, usable, (kind, self._plain))
        if name in special:
            return special[name](self, kind, depth)
        return self.of(self.turns.choose(self.dice, _BY_RESULT[kind][name], "operation"), depth)
