"""A query's demands on sensors: sample periods, events, errors and lifetimes -> acquisition hints of its sources."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from cluster.language.errors import suggest
from cluster.language.quantities import duration_us, period_us, read_quantity, read_real, written
from cluster.language.syntax import LifetimeClause, place_of
from cluster.operators import Node, Source
from cluster.operators.columns import PASSING, Column
from cluster.operators.source import Detector, Tolerance
from cluster.operators.walks import rebuilt
from protocols.wire.frames import LONGEST_PERIOD_US
from protocols.wire.streams import FieldType

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlglot import exp

    from cluster.language.catalog import BaseStream
    from cluster.language.context import Context
    from cluster.language.scope import ScopeColumn
    from cluster.language.syntax import EventsClause, SampleClause, Within

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
