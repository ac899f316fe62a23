"""Binding parameters: the text of a query in which a value stands for every ``:name`` ([decision 0040]).

The text is parsed with its parameters, so its shape is known before any value is looked at. Each value is then written
as a literal in its place, and the outcome is parsed again: it must be the same tree with literals in the places of the
parameters, or it is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeGuard

from sqlglot import exp

from cluster.language.accepted_syntax import BOOLEAN, NULL, NUMBER, QUERY_SYNTAX, TEXT
from cluster.language.errors import FjordSqlError, suggest
from cluster.language.parameter_values import (
    Spelled,
    Value,
    ValueRefusedError,
    check_is_value,
    described,
    spelled,
    spelled_level,
    spelled_quantity,
)
from cluster.language.statement_trees import NO_DECLARATION, statement_tree
from cluster.language.syntax import EventsClause, Hysteresis, OrderKey, Quantity, Within
from cluster.language.tokens import Mark, joined_mark, marks_in, readable
from cluster.planning_budget import spend
from protocols.wire.names import folded

MOST_VALUES = 1_000
"""Most parameters of a query."""
MOST_NAMED = 8
"""Parameters without a value that an error names."""
NO_PLACE = "a parameter cannot stand here"
ONLY_VALUES = (
    "it stands for a value: a number, a text, TRUE, FALSE, NULL or a duration; names and words are written out"
)
_VALUES = frozenset((NUMBER, TEXT, BOOLEAN, NULL))
_LEVELS = (EventsClause, Within, Hysteresis)
_BESIDE = frozenset(" \t\r\n(),=<>+*/%;")
"""What may stand directly before a literal without becoming a part of it."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A parameter of a template, and the place of its value in the bound text."""

    mark: Mark
    value: Value
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class BoundText:
    """A query with its values.

    Parameters
    ----------
    template
        The text with parameters.
    text
        The text without any: what is registered.
    pieces
        What was put where, in order.
    """

    template: str
    text: str
    pieces: tuple[Piece, ...] = ()

    @contextmanager
    def placed(self) -> Iterator[None]:
        """Give errors about the bound text their places in the template.

        Raises
        ------
        FjordSqlError
            In place of one about the bound text.
        """
        try:
            yield
        except FjordSqlError as error:
            if not self.pieces:
                raise
            raise self.error(error) from error

    def error(self, error: FjordSqlError) -> FjordSqlError:
        """Return an error about the bound text as one about the template, with the values that stand in its place."""
        start, end = self._before(error.start), self._before(error.end, ends=True)
        named = {folded(each.mark.name): each for each in self.pieces if start < each.mark.end <= max(end, start + 1)}
        values = "; ".join(f":{each.mark.name} is {described(each.value)}" for each in named.values())
        hint = "; ".join(part for part in (error.hint, values) if part) or None
        return FjordSqlError(error.reason, text=self.template, start=start, end=max(end, start), hint=hint)

    def _before(self, place: int, *, ends: bool = False) -> int:
        """Return the place in the template of a place in the bound text."""
        last = next((each for each in reversed(self.pieces) if each.start < place + (not ends)), None)
        if last is None:
            return place
        if place < last.end + ends:
            return last.mark.end if ends else last.mark.start
        return last.mark.end + place - last.end


def bind(text: str, values: Mapping[str, Value]) -> BoundText:
    """Return a query in which a value stands for each parameter.

    Parameters
    ----------
    text
        The query.
    values
        By name of the parameter; names have no case.

    Raises
    ------
    FjordSqlError
        If a parameter has no value, or stands where no value can; if there is no parameter of a name; if a value is of
        a type that cannot stand in its place.
    """
    text = readable(text)
    marks = marks_in(text)
    given = _given(values, text)
    check_names([text], values)
    if not marks:
        return BoundText(text, text)
    if missing := [each for each in marks if folded(each.name) not in given]:
        raise _missing(missing, text)
    places = _places(text)
    pieces: list[Piece] = []
    parts: list[str] = []
    expected: dict[int, exp.Expr] = {}
    done = length = 0
    for mark, place in zip(marks, places.marks, strict=True):
        value = given[folded(mark.name)]
        literal = _literal(place, value, text, mark)
        expected[id(place)] = literal.tree
        before = "" if mark.start == 0 or text[mark.start - 1] in _BESIDE else " "
        start = length + mark.start - done + len(before)
        length = start + len(literal.text)
        pieces.append(Piece(mark, value, start, length))
        parts += [text[done : mark.start], before, literal.text]
        done = mark.end
    bound = BoundText(text, "".join((*parts, text[done:])), tuple(pieces))
    with bound.placed():
        tree = statement_tree(readable(bound.text))
    if (differing := _differing(places.tree, tree, expected)) is not None:
        at = next((each for each in marks if each.start == differing), marks[0])
        hint = f"write (:{at.name}), in parentheses"
        raise _refused("with this value the query would have another shape", text, at, hint)
    return bound


def names_in(text: str) -> tuple[str, ...]:
    """Return the names of parameters in a text, in order, each once."""
    return tuple(dict.fromkeys(folded(each.name) for each in marks_in(text)))


def check_names(texts: Iterable[str], values: Iterable[str]) -> None:
    """Do nothing if each value is for a parameter of some text.

    Raises
    ------
    FjordSqlError
        If one is not, with the nearest name; it is about the first text.
    """
    every = list(texts)
    known = list(dict.fromkeys(name for text in every for name in names_in(text)))
    for name in values:
        if folded(name) not in known:
            raise _unknown(name, known, every[0])


def _unknown(name: str, known: list[str], text: str) -> FjordSqlError:
    hint = suggest(name, known, what="parameters are") or "the query has none; one is written :name"
    start = end = len(text) - len(text.lstrip())
    if (joined := joined_mark(text, name)) is not None:
        start, end = joined.start, joined.end
        hint = f"a parameter is no part of a word: write a space before :{name}"
    return FjordSqlError(f"there is no parameter {name!r} in this query", text=text, start=start, end=end, hint=hint)


@dataclass(frozen=True, slots=True)
class _Places:
    """The tree of a template, and its placeholders in the order of the text."""

    tree: exp.Expr
    marks: tuple[exp.Placeholder, ...]


def _given(values: Mapping[str, Value], text: str) -> dict[str, Value]:
    if len(values) > MOST_VALUES:
        raise FjordSqlError(f"a query has at most {MOST_VALUES:,} parameters", text=text, start=0, end=0)
    given = {folded(name): value for name, value in values.items()}
    if len(given) < len(values):
        twice = next(name for name in values if [folded(each) for each in values].count(folded(name)) > 1)
        reason, hint = f"the parameter {twice!r} has two values", "names of parameters have no case"
        raise FjordSqlError(reason, text=text, start=0, end=0, hint=hint)
    return given


@lru_cache(maxsize=4)
def _places(text: str) -> _Places:
    """Return the places of parameters; they are kept, because many queries are made of one template."""
    marks = marks_in(text)
    try:
        tree = statement_tree(text, template=True)
    except FjordSqlError as error:
        mark = next((each for each in marks if each.start <= error.start < each.end), None)
        if mark is None or error.reason == NO_DECLARATION:
            raise
        raise _refused(NO_PLACE, text, mark, ONLY_VALUES) from error
    found = {each.meta.get("start"): each for each in tree.find_all(exp.Placeholder)}
    for mark in marks:
        place = found.get(mark.start)
        if place is None or not _may_stand(place):
            raise _refused(NO_PLACE, text, mark, ONLY_VALUES)
    return _Places(tree, tuple(found[each.start] for each in marks))


_KEYED = (exp.Group, exp.Rollup, exp.Cube, exp.GroupingSets, exp.Dot, OrderKey)


def _may_stand(place: exp.Placeholder) -> bool:
    """Return whether a literal may stand at a place; nodes that are not accepted are refused by the translation."""
    node: exp.Expr = place
    while isinstance(node.parent, exp.Paren):
        node = node.parent
    in_set = isinstance(node.parent, exp.Tuple) and not isinstance(node.parent.parent, exp.In)
    if node.parent is None or in_set or isinstance(node.parent, _KEYED):
        return False  # what a number means as a key differs from what it means elsewhere
    accepted = QUERY_SYNTAX.get(type(node.parent), {}).get(str(node.arg_key))
    return accepted is None or bool(accepted & _VALUES)


def _literal(place: exp.Placeholder, value: Value, text: str, mark: Mark) -> Spelled:
    try:
        check_is_value(value)
        if isinstance(place.parent, Quantity):
            return spelled_quantity(value, place.parent.args.get("unit"))
        return spelled_level(value) if _is_level(place) else spelled(value)
    except ValueRefusedError as error:
        raise _refused(error.message, text, mark, error.hint) from None


def _is_level(place: exp.Placeholder) -> bool:
    """Return whether a parameter stands for a number of which the sign is a part."""
    return isinstance(place.parent, _LEVELS) and not (isinstance(place.parent, Hysteresis) and place.arg_key == "this")


def _differing(template: exp.Expr, bound: exp.Expr, expected: Mapping[int, exp.Expr]) -> int | None:
    """Return the place of the parameter next to a difference of two trees, or 0; None if there is no difference."""
    pending: list[tuple[object, object]] = [(template, bound)]
    last = 0
    while pending:
        spend()
        one, other = pending.pop()
        if isinstance(one, Quantity) and id(one.this) in expected:
            last = one.this.meta["start"]
            one = expected[id(one.this)]
        elif isinstance(one, exp.Placeholder) and id(one) in expected:
            last = one.meta["start"]
            one = expected[id(one)]
        if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
            pending += reversed([*zip(one, other, strict=True)])
        elif _is_node(one) and _is_node(other) and type(one) is type(other):
            arguments = [key for key in one.args | other.args if _set(one.args.get(key)) or _set(other.args.get(key))]
            pending += reversed([(one.args.get(key), other.args.get(key)) for key in arguments])
        elif one != other:
            return last
    return None


def _is_node(value: object) -> TypeGuard[exp.Expr]:
    return isinstance(value, exp.Expr)


def _set(argument: object) -> bool:
    return argument is not None and argument != []


def _missing(marks: list[Mark], text: str) -> FjordSqlError:
    names = list(dict.fromkeys(each.name for each in marks))
    listed = ", ".join(f":{name}" for name in names[:MOST_NAMED]) + (", ..." if len(names) > MOST_NAMED else "")
    reason = f"the parameter {listed} has no value" if len(names) == 1 else f"the parameters {listed} have no values"
    name = names[0]
    hint = f'give it one: --set {name}=VALUE, or {{"parameters": {{"{name}": VALUE}}}}'
    return _refused(reason, text, marks[0], hint)


def _refused(reason: str, text: str, mark: Mark, hint: str | None = None) -> FjordSqlError:
    return FjordSqlError(reason, text=text, start=mark.start, end=mark.end, hint=hint)
