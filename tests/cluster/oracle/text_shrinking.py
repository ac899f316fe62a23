"""Making a mismatch small: fewer tuples, and less text, while it still goes wrong."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

from cluster.plan.explain import explain
from tests.cluster.oracle.definition import Streams
from tests.cluster.oracle.proving import delivered
from tests.cluster.oracle.text_definition import TextDefinition
from tests.cluster.oracle.text_differences import TextTally, Wrong, differences
from tests.cluster.oracle.text_expressions import Scalar
from tests.cluster.oracle.text_forms import Item, Key, Output, Query, Select, SetOperation, Star, Text, side_of
from tests.cluster.oracle.text_operations import SQL_TYPES
from tests.cluster.oracle.text_running import planned, streams_of
from tests.cluster.oracle.text_world import TABLES, World
from tests.cluster.oracle.text_writing import written

SECONDS = 30.0
ATTEMPTS = 4
LITERALS = {"boolean": "TRUE", "integer": "1", "real": "0.5", "text": "'x'"}


def report_of(text: Text, world: World, wrong: Wrong, *, shrink: bool = True) -> str:
    """Return everything one needs to understand a mismatch, made small first."""
    if shrink:
        text, world, wrong = smallest(text, world, wrong)
    derived, query = written(text)
    lines = [wrong.difference, *(f"{each};" for each in derived), query]
    try:
        plans = planned(derived, query)
    except Exception as error:  # noqa: BLE001 - that is the mismatch
        return "\n" + "\n".join([*lines, str(error)])
    streams = streams_of(world, plans.streams)
    lines += [f"plan\n{explain(wrong.plan or plans.node)}", "streams, in order of arrival"]
    lines += [f"  {name}: {list(rows)}" for name, rows in streams.items()]
    lines += [f"  places: {list(world.places)}"] if "places" in query.casefold() else []
    return "\n" + "\n".join([*lines, f"delivery seed {wrong.seed}", _shown_delivery(streams, wrong.seed)])


def _shown_delivery(streams: Streams, seed: int) -> str:
    """Return the micro-batches of a seed, a line for each."""
    batches, restarts = delivered(streams, seed)
    lines = "".join(f"\n  {number}: {dict(batch)}" for number, batch in enumerate(batches))
    return f"micro-batches (restart after {sorted(restarts)}){lines}"


def smallest(text: Text, world: World, wrong: Wrong) -> tuple[Text, World, Wrong]:
    """Leave out one thing after the other while it still goes wrong."""
    until = time.monotonic() + SECONDS
    shrinking = True
    while shrinking:
        shrinking = False
        for candidate, other in _attempts(text, world):
            if time.monotonic() > until:
                return text, world, wrong
            found = still_wrong(candidate, other, wrong)
            if found is not None:
                text, world, wrong, shrinking = candidate, other, found, True
                break
    return text, world, wrong


def still_wrong(text: Text, world: World, before: Wrong) -> Wrong | None:
    """Return what is wrong with a text on one stream set, in some delivery; None if nothing is, or something else."""
    definition = TextDefinition([world])
    try:
        for attempt in range(ATTEMPTS):
            dice = random.Random(f"{before.seed}/{attempt}")
            for _, wrong in differences(text, [world], definition, dice, TextTally()):
                return wrong if wrong.kind == before.kind else None
    except Exception:  # noqa: BLE001 - no text any more
        return None
    finally:
        definition.close()
    return None


def _attempts(text: Text, world: World) -> Iterator[tuple[Text, World]]:
    if text.setting is not None:
        yield replace(text, setting=None), world
    if any(world.streams.values()):
        for share in (2, 4):
            for name, rows in world.streams.items():
                step = max(1, len(rows) // share)
                if len(rows) > 1:
                    for first in range(0, len(rows), step):
                        yield (
                            text,
                            replace(world, streams={**world.streams, name: [*rows[:first], *rows[first + step :]]}),
                        )
    for query in smaller_queries(text.query):
        yield replace(text, query=query), world
    for place, (name, query) in enumerate(text.derived):
        others = text.derived[:place], text.derived[place + 1 :]
        yield replace(text, derived=(*others[0], *others[1])), world
        for smaller in smaller_queries(query):
            yield replace(text, derived=(*others[0], (name, smaller), *others[1])), world
    for name in TABLES:
        rows = world.streams[name]
        for place in range(len(rows)):
            yield text, replace(world, streams={**world.streams, name: [*rows[:place], *rows[place + 1 :]]})
    for place in range(len(world.places)):
        yield text, replace(world, places=world.places[:place] + world.places[place + 1 :])


def smaller_queries(query: Query) -> Iterator[Query]:
    """Yield queries with one thing less; not all of them are any."""
    if isinstance(query, SetOperation):
        for side in (query.left, query.right):
            yield replace(side, names=(*query.names, *side.names))
        for side in smaller_queries(query.left):
            yield replace(query, left=side)
        for side in smaller_queries(query.right):
            yield replace(query, right=side)
    else:
        # Keys and ties of an order are columns of SELECT, by their places.
        kept = query.top is not None or query.ranked
        yield from (each for each in _smaller_selects(query) if not kept or each.outputs == query.outputs)
        if query.ranked:
            plain = tuple(each for each in query.outputs if isinstance(each, Star) or not each.scalar.rank)
            yield replace(query, outputs=plain, qualify=None, qualified="", top=None)
            yield replace(query, qualify=None, qualified="")
    if query.top is not None:
        yield replace(query, top=None)
        for place in range(len(query.top.keys) if len(query.top.keys) > 1 else 0):
            fewer = (*query.top.keys[:place], *query.top.keys[place + 1 :])
            yield replace(query, top=replace(query.top, keys=fewer))
    for place, (name, inner) in enumerate(query.names):
        yield replace(query, names=(*query.names[:place], *query.names[place + 1 :]))
        for smaller in smaller_queries(inner):
            yield replace(query, names=(*query.names[:place], (name, smaller), *query.names[place + 1 :]))
    if (query.parentheses or query.end) and not (query.top is not None and query.top.outside):
        yield replace(query, parentheses=0, end="")


def _smaller_selects(select: Select) -> Iterator[Select]:
    for part in ("where", "having"):
        if (condition := getattr(select, part)) is not None:
            yield replace(select, **{part: None})
            for each in smaller_scalars(condition):
                yield replace(select, **{part: each})
    if select.quantifier:
        yield replace(select, quantifier="")
    for place in range(len(select.items)):
        if len(select.items) > 1:
            yield replace(select, items=(*select.items[:place], *select.items[place + 1 :]))
        if side_of(select.items[place]) and isinstance(item := select.items[place], Item):
            smaller = replace(item, connector="JOIN")
            yield replace(select, items=(*select.items[:place], smaller, *select.items[place + 1 :]))
        for item in _smaller_items(select.items[place]):
            yield replace(select, items=(*select.items[:place], item, *select.items[place + 1 :]))
    for place in range(len(select.outputs)):
        others = select.outputs[:place], select.outputs[place + 1 :]
        if len(select.outputs) > 1:
            yield replace(select, outputs=(*others[0], *others[1]))
        for smaller in _smaller_outputs(select.outputs[place], place):
            yield replace(select, outputs=(*others[0], smaller, *others[1]))
    yield from _fewer_keys(select)


def _fewer_keys(select: Select) -> Iterator[Select]:
    if select.elements:
        yield replace(select, elements=())
        for place in range(len(select.elements)):
            yield replace(select, elements=(*select.elements[:place], *select.elements[place + 1 :]))
    elif select.keys:
        yield replace(select, keys=select.keys[:-1])
    for place, key in enumerate(select.keys):
        for scalar in smaller_scalars(key.scalar) if not key.text else ():
            yield _with_key(select, place, Key(scalar))


def _smaller_outputs(output: Output | Star, place: int) -> Iterator[Output]:
    if isinstance(output, Output):
        for scalar in smaller_scalars(output.scalar):
            default = "" if scalar.parentheses else scalar.default
            yield Output(scalar, output.name if output.alias else default or f"column_{place + 1}", output.alias)


def _with_key(select: Select, place: int, smaller: Key) -> Select:
    """Return a SELECT with another key, wherever it is written."""

    def changed(form: Any) -> Any:
        if isinstance(form, Scalar) and form.key == place:
            return replace(smaller.scalar, key=place)
        if isinstance(form, tuple):
            return tuple(changed(each) for each in form)
        if is_dataclass(form) and not isinstance(form, Item | type):
            return replace(form, **{each.name: changed(getattr(form, each.name)) for each in fields(form)})  # type: ignore[type-var] # any form
        return form

    keys = (*select.keys[:place], smaller, *select.keys[place + 1 :])
    return replace(select, keys=keys, outputs=changed(select.outputs), having=changed(select.having))


def _smaller_items(item: Any) -> Iterator[Any]:
    if not isinstance(item, Item):
        for part in ("left", "right"):
            for smaller in _smaller_items(getattr(item, part)):
                yield replace(item, **{part: smaller})
        return
    for place, clause in enumerate(item.clauses):
        fewer = (*item.clauses[:place], *item.clauses[place + 1 :])
        if item.window is not None and clause == item.window.text:
            yield replace(item, clauses=fewer, window=None)
        elif item.valid is not None and clause == item.valid.text:
            yield replace(item, clauses=fewer, valid=None)
        elif item.extent is not None and clause == item.extent.text != item.extent.plain:
            alike = replace(item.extent, text=item.extent.plain, tolerances=(None,) * len(item.extent.columns))
            clauses = (*item.clauses[:place], alike.text, *item.clauses[place + 1 :])
            yield replace(item, clauses=clauses, extent=replace(alike, condition=None, reads=()))
        elif any(clause == each.text for each in item.reshaped):
            yield replace(item, clauses=fewer, reshaped=tuple(each for each in item.reshaped if clause != each.text))
        elif clause.startswith(("SAMPLE", "SINCE")):
            source = item.source
            yield replace(
                item, clauses=fewer, source=replace(source, period=None) if hasattr(source, "period") else source
            )
    source: Any = item.source
    if hasattr(source, "query"):
        for query in smaller_queries(source.query):
            yield replace(item, source=replace(source, query=query))
    if hasattr(source, "item"):
        for inner in _smaller_items(source.item):
            yield replace(item, source=replace(source, item=inner))


def smaller_scalars(scalar: Scalar) -> Iterator[Scalar]:
    """Yield a literal, the parts of the same type, and the expression with smaller parts."""
    leaf = not scalar.parts and scalar.query is None
    if scalar.type is not None and (not leaf or scalar.aggregate is not None) and scalar.key is None:
        word = LITERALS.get(scalar.type.value)
        if word is not None:  # there are none of what lasts
            yield Scalar(scalar.type, (word,), (f"{word}::{SQL_TYPES[scalar.type]}",))
    for part in scalar.parts:
        if part.type is scalar.type and scalar.aggregate is None:
            yield part
    if scalar.parentheses:
        yield replace(scalar, parentheses=0)
    for place, part in enumerate(scalar.parts):
        if scalar.key is None:
            for smaller in smaller_scalars(part):
                yield replace(scalar, parts=(*scalar.parts[:place], smaller, *scalar.parts[place + 1 :]))
    if scalar.query is not None:
        for query in smaller_queries(scalar.query):
            yield replace(scalar, query=query)
