"""Counts what texts are made of, and says what the language accepts that none of them has.

What is required is taken from the language's own tables, not from what the drawing knows: a function, an argument, a
type or a unit that is added there and not drawn is missing here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Self

from cluster.expressions.called_functions import FUNCTIONS
from cluster.language.accepted_syntax import QUERY_SYNTAX, accepted_triples, occurrences
from cluster.language.dialect import FjordSQL
from cluster.language.functions import AGGREGATES
from cluster.language.parsing import FjordSqlParser
from cluster.language.quantities import CALENDAR_UNITS, DURATION_UNITS, FREQUENCY_UNITS
from cluster.language.spelling import SPELLINGS, SYNONYMS
from cluster.language.typing_rules import TYPE_WORDS
from cluster.scalars.scalar_function import FAMILY_OF, Family
from protocols.wire.streams import FIELD_TYPES, FieldType
from tests.cluster.oracle.text_expressions import scalars_in
from tests.cluster.oracle.text_forms import Text
from tests.cluster.oracle.text_intervals import RELATIONS
from tests.cluster.oracle.text_item_uses import ITEM_USES, item_uses
from tests.cluster.oracle.text_operations import COMPARABLE

_WORD = re.compile(
    r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/|DOUBLE\s+PRECISION|[A-Za-z_]\w*|->>?|<>|~\*?|[=!<>]=?",
    re.DOTALL | re.IGNORECASE,
)
LITERAL_SLOTS = {"decimals", "pattern", "group", "path", "REGEXP_REPLACE replacement"}
"""Arguments that are written out, and have one type."""
OTHER_USES = (
    "QUERY VALUE", "COMPLETENESS", "ERROR_BOUND", "GROUPING", "COUNT(*", "correlated", "EXISTS", "NOT EXISTS",
    "IN QUERY", "NOT IN QUERY",
    "NOT(query", "LIKE(", "NOT LIKE(", "LIKE ESCAPE", "NOT LIKE ESCAPE", "NOT IN(", "NOT BETWEEN(", "ILIKE(",
    "NOT ILIKE(", "ILIKE ESCAPE", "NOT ILIKE ESCAPE", "ROW IN(", "NOT ROW IN(", "IS TRUE(", "IS NOT TRUE(", "IS FALSE(",
    "IS NOT FALSE(", "VALID", "INTERSECT of 2", "INTERSECT of 3", "DURATION", "ALLEN", "EPOCH(interval)",
    "IS NULL(interval)", "MAX(interval)", "MIN(interval)", "COUNT(interval)", "correlated intervals", "PREV",
    *RELATIONS, "~=(real, real)", "~=(integer, integer)", "~=(integer, real)", "~=(real, integer)",
)  # fmt: skip
Fits = Callable[[str], bool]


@dataclass
class Drawn:
    """How often there was what.

    Parameters
    ----------
    syntax
        Kinds of node, argument and kind of value, in a tree of the language's own.
    words
        Names of functions, types, units and marks as written.
    uses
        Functions and operators with the types of their arguments, and what items of FROM are.
    """

    syntax: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    words: Counter[str] = field(default_factory=Counter)
    uses: Counter[str] = field(default_factory=Counter)

    def add(self, text: Text, statements: Sequence[str]) -> None:
        """Count what is in a text that was accepted."""
        for statement in statements:
            tree = FjordSqlParser(dialect=FjordSQL()).parse_one(FjordSQL().tokenize(statement), statement)
            self.syntax.update(each.triple for each in occurrences(tree))
            self.words.update(re.sub(r"\s+", " ", word).upper() for word in _WORD.findall(statement))
        self.uses.update(each.label for each in scalars_in(text) if each.label)
        self.uses.update(item_uses(text))

    def __iadd__(self, other: Self) -> Self:
        """Add what was drawn elsewhere."""
        self.syntax.update(other.syntax)
        self.words.update(other.words)
        self.uses.update(other.uses)
        return self

    def counts(self) -> dict[str, int]:
        """Return how often there was each thing that the language accepts."""
        found = {" ".join(triple): self.syntax[triple] for triple in sorted(accepted_triples())}
        found |= {f"word {word}": self.words[word] for word in sorted(required_words())}
        return found | {name: sum(n for use, n in self.uses.items() if fits(use)) for name, fits in required_uses()}

    def missing(self) -> list[str]:
        """Return what the language accepts and was never drawn."""
        return [name for name, count in self.counts().items() if not count]


def required_words() -> set[str]:
    """Return the words and marks that mean something, in all their spellings."""
    functions = {name for names in SPELLINGS.values() for name in names}
    return {*functions, *SYNONYMS, *SYNONYMS.values(), *DURATION_UNITS, *CALENDAR_UNITS, *FREQUENCY_UNITS, *TYPE_WORDS}


def required_uses() -> Iterator[tuple[str, Fits]]:
    """Yield what has to be used, and whether something is such a use."""
    yield from _functions()
    yield from _aggregates()
    yield from _operators()
    yield from ((name, _is(name)) for name in ITEM_USES)
    for name in OTHER_USES:
        yield name, _begins(name)
    for source, target, cast in product(FIELD_TYPES, FIELD_TYPES, ("CAST", "TRY_CAST")):
        yield f"{cast} {source} AS {target}", _is(f"{cast} AS {target}({source})")
    for name, kind in product(("CASE", "CASE OF", "IF", "IN", "BETWEEN", "IS NULL", "IS NOT NULL"), FIELD_TYPES):
        yield f"{name} with {kind}", _mentions(name, kind)


def _functions() -> Iterator[tuple[str, Fits]]:
    for function in FUNCTIONS.values():
        for place, slot in enumerate(function.slots):
            family = function.parameters[min(place, len(function.parameters) - 1)]
            for kind in types_of_family(family) if not LITERAL_SLOTS & {slot, f"{function.name} {slot}"} else ():
                yield f"{function.name} with {kind} at {place + 1}", _takes(function.name, place, kind)


def _aggregates() -> Iterator[tuple[str, Fits]]:
    for kind, aggregate in AGGREGATES.items():
        name = aggregate.name.upper()
        if name != "COMPLETENESS":
            for taken in types_of_family(aggregate.parameter):
                yield f"{name}({taken})", _is(f"{name}({taken})")
        if "Distinct" in QUERY_SYNTAX[kind].get("this", ()):
            yield f"{name} DISTINCT", _begins(f"{name} DISTINCT(")


def _operators() -> Iterator[tuple[str, Fits]]:
    numbers = types_of_family(Family.NUMBER)
    arithmetic = product(("+", "-", "*", "/", "%"), product(numbers, numbers))
    comparisons = product(("=", "<>", "<", "<=", ">", ">="), COMPARABLE)
    distinctions = product(("IS DISTINCT FROM", "IS NOT DISTINCT FROM"), COMPARABLE)
    for sign, (one, other) in (*arithmetic, *comparisons, *distinctions):
        yield f"{sign} of {one} and {other}", _is(f"{sign}({one}, {other})")
    for sign in ("=", "<>", "<", "<=", ">", ">="):
        for use in (f"{sign} QUERY", f"QUERY {sign}", f"{sign} ANY", f"{sign} ALL"):
            yield use, _is(use)


def types_of_family(family: Family) -> list[FieldType]:
    """Return the types that a family has."""
    if family is Family.INTEGER:
        return [FieldType.INTEGER]
    return [kind for kind in FIELD_TYPES if family in (Family.ANY, FAMILY_OF[kind])]


def _arguments(use: str) -> tuple[str, list[str]]:
    name, _, rest = use.partition("(")
    return name, rest.rstrip(")").split(", ")


def _is(wanted: str) -> Fits:
    return lambda use: use == wanted


def _takes(name: str, place: int, kind: FieldType) -> Fits:
    def fits(use: str) -> bool:
        called, arguments = _arguments(use)
        return called.rstrip("+") == name and len(arguments) > place and arguments[place] == kind

    return fits


def _begins(start: str) -> Fits:
    return lambda use: use.startswith(start)


def _mentions(name: str, kind: FieldType) -> Fits:
    def fits(use: str) -> bool:
        called, arguments = _arguments(use)
        return called == name and kind in arguments

    return fits
