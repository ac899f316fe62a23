"""Forms as FjordSQL."""

from __future__ import annotations

from collections.abc import Sequence

from tests.cluster.oracle import text_spelling as spelling
from tests.cluster.oracle.text_expressions import QUERY, Binding, Hole, Scalar
from tests.cluster.oracle.text_forms import (
    Changes,
    InOrder,
    Item,
    Key,
    KeySet,
    Named,
    Nested,
    Output,
    Query,
    Relation,
    Select,
    SetOperation,
    Star,
    Stream,
    Text,
    Zipped,
    connector_of,
    outputs_of,
)


def written(text: Text) -> tuple[list[str], str]:
    """Return the declarations of derived streams, and the query."""
    derived = [f"CREATE STREAM {name} AS {query_text(query)}" for name, query in text.derived]
    return [spelling.set_in(each, text.setting) for each in derived], spelling.set_in(
        query_text(text.query), text.setting
    )


def query_text(query: Query) -> str:
    """Return a query."""
    names = ", ".join(f"{name} AS ({query_text(inner)})" for name, inner in query.names)
    start = f"WITH {names} " if names else ""
    body = _select(query) if isinstance(query, Select) else _set_operation(query)
    if query.top is not None and query.top.outside:
        # WITH stands before the parentheses, and what is first in them behind.
        return f"{start}{'(' * query.parentheses}{body}{')' * query.parentheses}{_top(query)}"
    return "(" * query.parentheses + start + body + ")" * query.parentheses


def _top(query: Query) -> str:
    assert query.top is not None
    keys = []
    for key in query.top.keys:
        value = key.text or scalar_text(outputs_of(query)[key.column].scalar)
        keys.append(f"{value}{_behind(key.words)}")
    return f" ORDER BY {', '.join(keys)} {query.top.text}"


def _top_inside(query: Query) -> str:
    return _top(query) if query.top is not None and not query.top.outside else ""


def _open(side: Query) -> bool:
    """Return whether an operand needs parentheses of its own around it: WITH or LIMIT would be those of the whole."""
    if side.top is not None and (side.top.outside or not side.parentheses):
        return True
    return not side.parentheses and bool(side.names)


def scalar_text(scalar: Scalar, least: Binding = Binding.OR) -> str:
    """Return an expression, in parentheses if it has to hold more tightly than it does."""
    found = "".join(each if isinstance(each, str) else _part(scalar, each) for each in scalar.text)
    if scalar.binding < least and not scalar.parentheses:
        return f"({found})"
    return "(" * scalar.parentheses + found + ")" * scalar.parentheses


def _part(scalar: Scalar, hole: Hole) -> str:
    if hole.part == QUERY:
        assert scalar.query is not None
        return f"({query_text(scalar.query)})"
    return scalar_text(scalar.parts[hole.part], hole.binding)


def _set_operation(query: SetOperation) -> str:
    left, right = query_text(query.left), query_text(query.right)
    if _open(query.left) or (not query.left.parentheses and _looser(query.left, query.kind)):
        left = f"({left})"
    if _open(query.right) or (not query.right.parentheses and _looser(query.right, query.kind, right=True)):
        right = f"({right})"
    return f"{left} {query.word} {right}{_top_inside(query)}{_behind(query.end)}"


def _looser(side: Query, kind: str, *, right: bool = False) -> bool:
    """Return whether an operand needs parentheses: INTERSECT holds more tightly; all else goes from left to right."""
    if not isinstance(side, SetOperation):
        return False
    if side.end:
        return True
    return (kind == "INTERSECT" and side.kind != "INTERSECT") or (right and not (side.kind == "INTERSECT" != kind))


def _select(query: Select) -> str:
    quantifier = f"{query.quantifier} " if query.quantifier else ""
    outputs = ", ".join(_output(each) for each in query.outputs if isinstance(each, Star) or not each.added)
    first, *others = query.items
    from_ = _item(first) + "".join(_joined(each) for each in others)
    where = f" WHERE {scalar_text(query.where)}" if query.where else ""
    elements = query.elements or range(len(query.keys))
    group = f" GROUP BY {', '.join(_element(each, query.keys) for each in elements)}" if elements else ""
    having = f" HAVING {scalar_text(query.having)}" if query.having else ""
    qualify = f" QUALIFY {query.qualified or scalar_text(query.qualify)}" if query.qualify else ""
    clauses = f"{where}{group}{having}{qualify}{_top_inside(query)}"
    return f"SELECT {quantifier}{outputs} FROM {from_}{clauses}{_behind(query.end)}"


def _behind(end: str) -> str:
    return f" {end}" if end else ""


def _output(output: Output | Star) -> str:
    if isinstance(output, Star):
        return output.text
    return f"{scalar_text(output.scalar)}{_behind(output.alias)}"


def _element(element: int | KeySet, keys: Sequence[Key]) -> str:
    if isinstance(element, int):
        return _key(keys[element])
    word = f"{element.word} " if element.word else ""
    return f"{word}({', '.join(_element(each, keys) for each in element.parts)})"


def _key(key: Key) -> str:
    return key.text or scalar_text(key.scalar)


def _joined(item: Item | Zipped) -> str:
    connector = connector_of(item)
    on = f" ON {scalar_text(item.on)}" if isinstance(item, Item) and item.on else ""
    if isinstance(item, Item) and item.using:
        on = f" USING ({', '.join(item.using)})"
    return f"{',' if connector == ',' else ' ' + connector} {_item(item)}{on}"


def _item(item: Item | Zipped) -> str:
    if isinstance(item, Zipped):
        return f"{_item(item.left)} {item.text}{_item(item.right)}{item.on}"
    clauses = "".join(f" {clause}" for clause in item.clauses)
    match item.source:
        case Nested():
            return f"({query_text(item.source.query)}){clauses}"
        case Changes():
            return f"{item.source.text}({_item(item.source.item)}){clauses}"
        case InOrder():
            return f"({_in_order(item.source)}){clauses}"
        case Stream() | Relation() | Named():
            return f"{item.source.text}{clauses}"


def _in_order(query: InOrder) -> str:
    shown = [*(text for _, text in query.columns), *(f"{call.text} AS {name}" for call, name in query.calls)]
    where = "" if query.where is None else f" WHERE {query.where[1]} IS NOT NULL"
    qualify = "" if query.qualify is None else f" QUALIFY {query.qualify[0]}"
    return f"SELECT {', '.join(shown)} FROM {_item(query.item)}{where}{qualify}"
