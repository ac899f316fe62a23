"""What stands at the ends of random queries, SAMPLE and LIFETIME, and which streams it is about."""

from __future__ import annotations

from dataclasses import replace

from tests.cluster.oracle.text_forms import Changes, InOrder, Item, Nested, Query, Select, Stream, Zipped


def has_unsampled(item: Item | Zipped) -> bool:
    """Return whether there is a stream that sensors feed, and of which nothing says how often it is sampled."""
    if isinstance(item, Zipped):
        return has_unsampled(item.left) or has_unsampled(item.right)
    return isinstance(item.source, Stream) and not any(clause.startswith("SAMPLE") for clause in item.clauses)


def has_live(query: Query) -> bool:
    """Return whether a query surely reads a stream of which nothing says since when."""

    def live(item: Item | Zipped) -> bool:
        if isinstance(item, Zipped):
            return live(item.left) or live(item.right)
        match item.source:
            case Stream():
                return not any(clause.upper().startswith("SINCE") for clause in item.clauses)
            case Nested(inner):
                return has_live(inner)
            case Changes(item=inner) | InOrder(item=inner):
                return live(inner)
            case _:
                return False

    if isinstance(query, Select):
        return any(live(each) for each in query.items)
    return has_live(query.left) or has_live(query.right)


def end_of(query: Query) -> str:
    """Return what stands at the end of a query, which is about all operands of a set operation."""
    return query.end or (end_of(query.right) if not isinstance(query, Select) else "")


def has_unlasting(query: Query) -> bool:
    """Return whether a query surely reads a stream of which nothing says how long its sensors should last."""
    if "LIFETIME" in end_of(query):
        return False
    if isinstance(query, Select):
        return any(reads_unlasting(each) for each in query.items)
    return has_unlasting(query.left) or has_unlasting(query.right)


def reads_unlasting(item: Item | Zipped) -> bool:
    """Return whether an item of FROM surely reads such a stream; what names stand for is not looked at."""
    if isinstance(item, Zipped):
        return reads_unlasting(item.left) or reads_unlasting(item.right)
    match item.source:
        case Stream():
            return True
        case Nested(query):
            return has_unlasting(query)
        case Changes(item=inner) | InOrder(item=inner):
            return reads_unlasting(inner)
        case _:
            return False


def with_period(item: Item | Zipped, period: int) -> Item | Zipped:
    """Return an item with a sample period for its streams that have none of their own."""
    if isinstance(item, Zipped):
        return replace(item, left=with_period(item.left, period), right=with_period(item.right, period))
    own = any(clause.startswith("SAMPLE") for clause in item.clauses)
    if not isinstance(item.source, Stream) or own or " above " in item.source.table:
        return item
    return replace(item, source=replace(item.source, period=period))
