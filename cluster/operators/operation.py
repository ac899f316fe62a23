"""Operations: what runs of an operator, with everything that its running form is made from, and in words.

Plain data, which plan files hold. The name of a kind in ids of state never changes: running state is found by it.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterable
from typing import ClassVar

import msgspec

from cluster.operators.columns import COVERED_BY, MARKS, QUERY_GROUP, RIGHT, VISIBLE_FROM, Scalar
from cluster.operators.scalar_expressions import columns_of, conjunction_of, conjuncts_of
from protocols.text.quantities import format_duration

_PICTURES = {**{code: 0x2400 + code for code in range(32)}, 0x7F: 0x2421, 0x85: 0x2424, 0x2028: 0x2424, 0x2029: 0x2424}
"""Pictures of control characters in texts: a line feed would otherwise end the operator's line."""

_SIMPLE_NAME = re.compile(r'"([^\W\d]\w*(?:\.[^\W\d]\w*)?)"')


def in_one_line(text: str) -> str:
    """Return a text with pictures in place of control characters."""
    return text.translate(_PICTURES)


def readable(scalar: Scalar) -> str:
    """Return an expression in one line, without the quotes that simple names do not need.

    >>> from cluster.plan.scalar_texts import read_scalar
    >>> from protocols.wire.streams import FieldType
    >>> readable(read_scalar('"speed" > "avg(speed)"', FieldType.BOOLEAN))
    'speed > "avg(speed)"'
    """
    pieces = re.split(r"('(?:[^']|'')*')", in_one_line(scalar.sql))
    return "".join(piece if piece.startswith("'") else _SIMPLE_NAME.sub(r"\1", piece) for piece in pieces)


def listed(names: tuple[str, ...]) -> str:
    """Return names as a list."""
    return ", ".join(names)


def pairs_listed(keys: tuple[tuple[str, str], ...]) -> str:
    """Return the equalities of a join, if there are any."""
    return f" on {listed(tuple(f'{one} = {other}' for one, other in keys))}" if keys else ""


def tuples_counted(count: int) -> str:
    """Return a number of tuples behind "the last"."""
    return "tuple" if count == 1 else f"{count} tuples"


def signed(distance_us: int) -> str:
    """Return a distance in time that may be negative."""
    return f"{'-' if distance_us < 0 else ''}{format_duration(abs(distance_us))}" if distance_us else "0s"


ADDED = frozenset(
    {*(mark.name for mark in MARKS), RIGHT + QUERY_GROUP.name, RIGHT + VISIBLE_FROM.name, COVERED_BY.name}
)
"""Columns that Fjord adds."""


class Operation(msgspec.Struct, frozen=True, tag=True):
    """Base of all kinds. Their names in plan files and in ids of state never change, however classes are called."""

    called: ClassVar[str] = ""

    @classmethod
    def kind_name(cls) -> str:
        """Return the name of the kind in plan files and prices."""
        return str(cls.__struct_config__.tag)

    @classmethod
    def state_name(cls) -> str:
        """Return the name of the kind in ids of state."""
        return cls.called or cls.kind_name()

    @abstractmethod
    def describe(self) -> str:
        """Return one line about it, as far as it does not depend on the queries that share it."""

    @property
    @abstractmethod
    def holds_rows_back(self) -> bool:
        """Whether it holds a row back until its end is known."""


class Prompt(Operation, frozen=True):
    """Base of kinds that answer a row once its beginning is certain."""

    @property
    def holds_rows_back(self) -> bool:
        """No."""
        return False


class Late(Operation, frozen=True):
    """Base of kinds that answer a row once its end is known."""

    @property
    def holds_rows_back(self) -> bool:
        """Yes."""
        return True


def own(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names of columns that Fjord has not added."""
    return tuple(name for name in names if name not in ADDED)


def own_pairs(pairs: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return the pairs of columns of a join that Fjord has not added."""
    return tuple(pair for pair in pairs if pair[0] not in ADDED)


def own_keys(names: Iterable[str]) -> tuple[str, ...]:
    """Return keys as queries have them, where panes have names that are made of expressions."""
    return tuple(_key(name) for name in own(names))


def _key(name: str) -> str:
    return name.removeprefix("fjord_key(").removesuffix(")").replace('"', "") if name.startswith("fjord_key(") else name


def own_condition(predicate: Scalar | None) -> str:
    """Return a condition as queries have it, behind a space; empty if there is none."""
    found = conjunction_of([part for part in conjuncts_of(predicate) if not columns_of(part) <= ADDED])
    return "" if found is None else f" {readable(found)}"
