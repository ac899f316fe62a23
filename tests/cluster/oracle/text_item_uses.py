"""Names of what items of FROM are, as far as it is about validity: what has to be drawn, and what a text has of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from protocols.wire.streams import FIELD_TYPES
from tests.cluster.oracle.text_forms import Changes, Extent, Item, Nested, Select, Stream, Window, outputs_of, side_of
from tests.cluster.specimens import CLAUSES

WINDOWS = (
    "RANGE",
    "RANGE SLIDE",
    "RANGE OFFSET",
    "RANGE MIN",
    "ROWS",
    "ROWS SLIDE",
    "RESET",
    "RESET SLIDE",
    "CALENDAR",
)
ITEM_USES = (
    *(f"COALESCE over {each}" for each in WINDOWS),
    *(f"COALESCE {each}" for each in ("of events", "of a subquery", "in changes", "in a join")),
    *(f"COALESCE with {word}" for word in CLAUSES),
    *(f"COALESCE in a {side} JOIN" for side in ("LEFT", "RIGHT", "FULL")),
    *(f"COALESCE BY {number} keys" for number in range(3)),
    *(f"COALESCE {word} {kind}" for word in ("of", "BY") for kind in FIELD_TYPES),
    *(f"COALESCE {word}" for word in ("TOLERANCE integer", "TOLERANCE real", "WHILE", "WHILE of other columns")),
    *(f"KEEP over {each}" for each in ("RANGE", "RANGE SLIDE", "ROWS", "ROWS SLIDE")),
    *("KEEP at the end", "KEEP in a subquery", "KEEP of a pair", "KEEP of a group"),
    *(f"VALID UNTIL NEXT beside {each}" for each in ("RANGE", "RANGE SLIDE", "ROWS", "SESSION", "RESET", "CALENDAR")),
    *(f"VALID UNTIL NEXT {each}" for each in ("", "MAX", "of events", "of a subquery", "of changes")),
)
"""What items have to be."""


def item_uses(form: Any, place: str = "") -> Iterator[str]:
    """Yield what the items in a form are; `place` is what they stand in."""
    match form:
        case Item():
            yield from _of_item(form, place)
            place = "in changes" if isinstance(form.source, Changes) else "in a subquery"
            yield from item_uses(form.source, place)
        case Select():
            yield from _of_select(form)
            for each in fields(form):
                yield from item_uses(getattr(form, each.name), place)
        case tuple():
            for each in form:
                yield from item_uses(each, place)
        case _ if is_dataclass(form) and not isinstance(form, type):
            for each in fields(form):
                yield from item_uses(getattr(form, each.name), place)


def _of_item(item: Item, place: str) -> Iterator[str]:
    window = item.window
    if window is None:
        return
    if item.extent is not None:
        yield f"COALESCE over {_called(window)}"
        yield f"COALESCE {place}"
        yield from (f"COALESCE {each}" for each in _of_extent(item.extent))
        yield from (f"COALESCE {each}" for each in _of_source(item))
        yield from (f"COALESCE with {each.clause.word}" for each in item.reshaped)
        if side := side_of(item):
            yield f"COALESCE in a {side} JOIN"
    if item.keep:
        yield f"KEEP over {_called(window)}"
        yield f"KEEP {place}"
        if item.keep not in item.clauses:
            yield "KEEP at the end"
    if item.valid is not None:
        yield f"VALID UNTIL NEXT beside {_called(window)}"
    if window.kind == "NEXT" or item.valid is not None:
        yield f"VALID UNTIL NEXT {'MAX' if window.size is not None else ''}"
        yield from (f"VALID UNTIL NEXT {each}" for each in _of_source(item))


def _of_select(select: Select) -> Iterator[str]:
    items = [each for each in select.items if isinstance(each, Item) and each.extent is not None]
    if len(items) > 1:
        yield "COALESCE in a join"
    added = any(each.added for each in outputs_of(select))
    if added and sum(bool(each.keep) for each in items) > 1:
        yield "KEEP of a pair"
    if added and select.grouped:
        yield "KEEP of a group"


def _of_extent(extent: Extent) -> Iterator[str]:
    yield f"BY {len(extent.keys)} keys"
    yield from (f"of {extent.types[each]}" for each in extent.columns)
    yield from (f"BY {extent.types[each]}" for each in extent.keys)
    for column, tolerance in zip(extent.columns, extent.tolerances, strict=True):
        if tolerance is not None:
            yield f"TOLERANCE {extent.types[column]}"
    if extent.condition is not None:
        yield "WHILE"
        if extent.ties != extent.shown:
            yield "WHILE of other columns"


def _of_source(item: Item) -> Iterator[str]:
    if isinstance(item.source, Nested):
        yield "of a subquery"
    elif isinstance(item.source, Changes):
        yield "of changes"
    elif isinstance(item.source, Stream) and " above " in item.source.table:
        yield "of events"


def _called(window: Window) -> str:
    """Return the name of a kind of window."""
    if " MIN " in window.text and window.kind == "RANGE":
        return "RANGE MIN"
    if window.offset and window.kind == "RANGE":
        return "RANGE OFFSET"
    if window.kind == "ROWS" and window.keys:
        return "ROWS of keys"
    slides = window.slide > 1 and not window.kind.startswith("CALENDAR")
    return f"{window.kind}{' SLIDE' if slides else ''}"
