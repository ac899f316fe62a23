"""A query's demands on sensors: sample periods, events, errors, lifetimes, and whether equal samples may stay away.

**Streams of which a query asks only what held for how long: samples that equal the one before may stay away.**

They are filled in before operators see them, so that answers are the same. Only where packets of a mote are lost there
are NULLs instead of what is not known. So this is for streams where these NULLs end what held before: they have to
reach COALESCE or VALID UNTIL NEXT, under keys that no loss changes.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from cluster.expressions import nodes
from cluster.expressions.walks import columns_read, from_below
from cluster.language.errors import suggest
from cluster.language.quantities import duration_us, period_us, read_quantity, read_real, written
from cluster.language.syntax import LifetimeClause, place_of
from cluster.operators import Filter, KeptExtent, Node, Project, Source, TimeWindow
from cluster.operators.columns import PASSING, STAMP, Column
from cluster.operators.source import Detector, Tolerance, Unchanged
from cluster.operators.walks import nodes_of, rebuilt
from protocols.wire.frames import LONGEST_PERIOD_US
from protocols.wire.streams import FieldType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from sqlglot import exp

    from cluster.language.catalog import BaseStream
    from cluster.language.context import Context
    from cluster.language.scope import ScopeColumn
    from cluster.language.stream_item import StreamItem
    from cluster.language.syntax import CoalesceClause, EventsClause, SampleClause, ValidClause, Within

OWN = "every stream {} has a {} of its own"
LEAVE_OUT = "leave one of them out"
NUMBERS = (FieldType.INTEGER, FieldType.REAL)


def with_sample(source: Source, sample: SampleClause, context: Context) -> Source:
    """Return `source` with the sample period of `sample`.

    Raises
    ------
    FjordSqlError
        If a period is missing or too long, or the longest accepted period is not a multiple of the demanded one.
    """
    period = _period(sample, context)
    slowest: SampleClause | None = sample.args.get("slowest")
    longest = period if slowest is None else _period(slowest, context)
    if slowest is not None and longest % period:
        raise context.error(
            slowest,
            f"{written(longest)} is no whole multiple of {written(period)}",
            f"the longer period takes some of the shorter one's samples, as {written(_next(longest, period))} would",
        )
    return msgspec.structs.replace(source, sample_period_us=period, slowest_us=0 if longest == period else longest)


def _next(duration: int, period: int) -> int:
    return -(-duration // period) * period


def _period(sample: SampleClause, context: Context) -> int:
    found = read_quantity(sample.this, duration_us if sample.args["kind"] == "EVERY" else period_us, context)
    if found > LONGEST_PERIOD_US:
        longest = written(LONGEST_PERIOD_US)
        raise context.error(sample.this, f"a sample period is at most {longest}", f"write {longest}, or less")
    return found


def with_events(source: Source, events: EventsClause, stream: BaseStream, context: Context) -> Source:
    """Return the events in the samples of `stream` instead of the samples themselves, which `source` reads.

    Raises
    ------
    FjordSqlError
        If the field does not exist, is not sampled or not a number, or if the levels are the wrong way round.
    """
    field = events.this
    fields = stream.schema.fields
    usable = [each.name for each in fields if each.type in NUMBERS and not each.fixed]
    found = next((each for each in fields if each.name.casefold() == field.name.casefold()), None)
    if found is None:
        reason = f"stream {stream.name!r} has no field {field.name!r}"
        raise context.error(field, reason, suggest(field.name, usable, what="it samples"))
    hint = f"events can be seen in {', '.join(usable)}" if usable else "no field of this stream is a sampled number"
    if found.fixed:
        raise context.error(field, f"{found.name!r} is fixed: it is not sampled, and never rises or falls", hint)
    if found.type not in NUMBERS:
        raise context.error(field, f"only a number rises and falls, but {found.name!r} is {found.type.value}", hint)
    fixed = tuple(Column(each.name, each.type, each.unit) for each in stream.schema.fixed)
    if any(column.name.casefold() == PASSING.name for column in fixed):
        reason = f"an event has a column {PASSING.name!r}, and so has the stream"
        raise context.error(events, reason, "declare the stream with another name for it")
    level: exp.Literal = events.args["above"]
    lower: exp.Literal = events.args.get("below") or level
    above, below = _level(level, context), _level(lower, context)
    if below > above:
        reason = f"an event that begins above {above:g} cannot end below {below:g}, which is higher"
        raise context.error(lower, reason, "BELOW is at most ABOVE; leave it out if they are equal")
    stamp = tuple(column for column in source.columns if column not in stream.columns)
    detector = Detector(found.name, above, below)
    return msgspec.structs.replace(source, columns=(*fixed, PASSING, *stamp), detector=detector)


def _level(level: exp.Literal, context: Context) -> float:
    value = read_real(level, context)
    if not math.isfinite(value):
        raise context.error(level, "the number is too large", "no field reaches it")
    return value


def with_tolerance(source: Source, column: ScopeColumn, within: Within, context: Context) -> Source:
    """Return `source` with the error that `within` allows on its `column`.

    Raises
    ------
    FjordSqlError
        If that is no number that is sampled, or another error is allowed elsewhere.
    """
    name = column.visible
    if source.detector is not None:
        reason = f"an error can be allowed on what is sampled, but {name!r} belongs to an event"
        raise context.error(within, reason, f"events are seen in samples of {source.detector.field}")
    if column.type not in NUMBERS:
        raise context.error(within, f"an error can be allowed on a number, but {name!r} is {column.type.value}")
    error = read_real(within.expression, context)
    if not 0 < error < math.inf:
        word = "greater than zero" if error <= 0 else "finite"
        raise context.error(within.expression, f"the error allowed must be {word}")
    same = next((each for each in source.tolerances if each.field == name), None)
    if same is not None and same.error != error:
        raise context.error(within, f"{name!r} already has an error of {same.error:g}", "allow one error")
    tolerances = {each.field: each for each in source.tolerances} | {name: Tolerance(name, error)}
    return msgspec.structs.replace(source, tolerances=tuple(tolerances[each] for each in sorted(tolerances)))


def with_lifetime(node: Node, lifetime: LifetimeClause, context: Context) -> Node:
    """Return `node` with the lifetime wanted noted at every source below it that has none yet.

    Raises
    ------
    FjordSqlError
        If it is no duration.
    """
    wanted = read_quantity(lifetime.this, duration_us, context, meant="DAYS")
    place = place_of(lifetime)

    def lasting(source: Source) -> Source:
        if source.lifetime_us:
            return source
        context.lasting.add(place)
        return msgspec.structs.replace(source, lifetime_us=wanted)

    return with_sources(node, lasting)


def note_same_lifetimes(one: exp.Expr, other: exp.Expr, context: Context) -> None:
    """Note of the lifetimes in a query that they apply where those of an equal one do, which is translated for both."""
    for first, second in zip(one.find_all(LifetimeClause), other.find_all(LifetimeClause), strict=True):
        if place_of(first) in context.lasting:
            context.lasting.add(place_of(second))


def refuse_lifetimes_without_streams(tree: exp.Expr, context: Context) -> None:
    """Refuse a LIFETIME in a translated `tree` if each of its streams has another, nearer one.

    Raises
    ------
    FjordSqlError
        If there is one, in a text that is new.
    """
    for lifetime in tree.find_all(LifetimeClause):
        if place_of(lifetime) not in context.lasting:
            context.refuse_ignored(lifetime, OWN.format("that this query reads", "LIFETIME"), LEAVE_OUT)


def with_sources(node: Node, change: Callable[[Source], Source]) -> Node:
    """Return `node` with every source below it changed."""
    return rebuilt(node, lambda each: change(each) if isinstance(each, Source) else each)


LONGEST_SILENCE_US = 600_000_000
"""A sample that equals the one before may stay away for so long at most; after a loss nothing is known for as long."""
WITHOUT_TIME_US = 60_000_000
"""The same behind a window by count."""
SHARE_OF_WINDOW = 10
"""A tenth of a window by time at most."""
_PASS_NULL_ON = frozenset({"+", "-", "*", "/", "%", "=", "<>", "<", "<=", ">", ">="})
_FIXED, _SAMPLED, _OTHER = range(3)


def noted(result: Node, node: Node, item: StreamItem, context: Context) -> Node:
    """Return what an item of FROM gives, with a note at its stream of whether samples may stay away.

    Parameters
    ----------
    result
        The rows of the item.
    node
        The tuples below COALESCE or VALID UNTIL NEXT; for items with neither, nothing is noted.
    item
        Its syntax, which has been checked.
    context
        For quantities.
    """
    coalesce: CoalesceClause | None = item.args.get("coalesce")
    valid: ValidClause | None = item.args.get("valid")
    if coalesce is None and valid is None:
        return result
    kinds = _kinds_of(node)
    if kinds is None:
        return result
    names = {column.name.casefold(): column.name for column in node.schema}
    keys = {names[each.name.casefold()] for each in (coalesce or valid).args.get("keys") or ()}  # type: ignore[union-attr]
    if coalesce is None:
        read: Iterable[str] = [name for name in names.values() if name != STAMP.name and name not in keys]
    else:
        read = [names[each.this.name.casefold()] for each in coalesce.expressions]
    found = _why_not(kinds, keys, list(read), decided=bool(coalesce is not None and coalesce.args.get("condition")))
    silence_us = 0 if found else _silence_us(result, valid, context)
    note = Unchanged(silence_us, found)
    return with_sources(result, lambda source: msgspec.structs.replace(source, unchanged=note))


def _why_not(kinds: Mapping[str, int], keys: set[str], read: list[str], *, decided: bool) -> str:
    """Return why every sample is needed; empty if those that equal the one before may stay away."""
    if decided:
        return "WHILE may link what is not known"
    for name in sorted(keys):
        if kinds[name] != _FIXED:
            return f"{name} is sampled, so that after a loss it is not known whose validity ends"
    for name in read:
        if kinds[name] == _OTHER:
            return f"{name} may be a value where a sample is not known"
    if all(kinds[name] == _FIXED for name in read):
        return "it reads nothing that is sampled"
    return ""


def _silence_us(result: Node, valid: ValidClause | None, context: Context) -> int:
    if valid is not None:
        longest = valid.args.get("longest")
        longest_us = (
            LONGEST_SILENCE_US if longest is None else read_quantity(longest, duration_us, context, meant="MINUTES")
        )
        return min(LONGEST_SILENCE_US, longest_us)
    window = next((each for each in nodes_of(result) if isinstance(each, TimeWindow | KeptExtent)), None)
    if window is None or (isinstance(window, KeptExtent) and window.kept.rows is not None):
        return WITHOUT_TIME_US
    size_us = window.kept.size_us if isinstance(window, KeptExtent) else window.size_us
    return LONGEST_SILENCE_US if size_us is None else min(LONGEST_SILENCE_US, size_us // SHARE_OF_WINDOW)


def _kinds_of(node: Node) -> dict[str, int] | None:
    """Return whether columns are fixed, or NULL where a sample is not known; None if these samples do not come here."""
    above: list[Project | Filter] = []
    while isinstance(node, Project | Filter):
        above.append(node)
        node = node.input
    if not isinstance(node, Source) or node.detector is not None:
        return None
    sampled = {column.name for column in node.sampled if column != STAMP}
    kinds = {name: _SAMPLED if name in sampled else _OTHER for name in (column.name for column in node.columns)}
    kinds |= dict.fromkeys(node.fixed, _FIXED)
    for each in reversed(above):
        if isinstance(each, Project):
            kinds = {output.name: _kind_of(output.scalar.expression, kinds) for output in each.outputs}
        elif any(kinds[name] != _FIXED for name in columns_read(each.predicate.expression)):
            return None
    return kinds


def _kind_of(expression: nodes.Expression, columns: Mapping[str, int]) -> int:
    """Return the kind of an expression: NULL if one of its operands is, as far as is certain."""
    kinds: dict[int, int] = {}
    for each in from_below(expression):
        below = {kinds[id(operand)] for operand in each.operands}
        if isinstance(each, nodes.Column):
            kind = columns[each.name]
        elif below <= {_FIXED}:
            kind = _FIXED
        elif any(kinds[id(operand)] == _SAMPLED for operand in _strict(each)):
            kind = _SAMPLED
        else:
            kind = _OTHER
        kinds[id(each)] = kind
    return kinds[id(expression)]


def _strict(expression: nodes.Expression) -> tuple[nodes.Expression, ...]:
    """Return operands that make an expression NULL if they are."""
    match expression:
        case nodes.Binary() if expression.sign in _PASS_NULL_ON:
            return expression.operands
        case nodes.Between():
            return (expression.value,)
        case nodes.Group() | nodes.Negative() | nodes.Not() | nodes.Cast():
            return expression.operands
        case _:
            return ()
