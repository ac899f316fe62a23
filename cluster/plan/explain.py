"""Plans as trees that people can read."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from cluster.operators import (
    Node,
)
from cluster.plan.rewrite import Rewritten

if TYPE_CHECKING:
    from cluster.language.translation import Query


def explain(node: Node, *, schemas: bool = False) -> str:
    """Return `node` as a tree, the result on top and the streams at the bottom.

    A part that occurs twice in the plan is computed once; it is numbered at its first place.

    Parameters
    ----------
    node
        The plan.
    schemas
        True to write the columns of every node behind it, with types and units.
    """
    return "\n".join(f"{line}{_columns(each) if schemas and not again else ''}" for line, each, again in tree_of(node))


def tree_of(node: Node) -> list[tuple[str, Node, bool]]:
    """Return the lines of a plan as a tree, each with its node, and whether it only refers to another line."""
    counts: Counter[Node] = Counter()
    _count(node, counts)
    numbers: dict[Node, int] = {}
    lines: list[tuple[str, Node, bool]] = []

    def draw(current: Node, first: str, rest: str) -> None:
        shared = counts[current] > 1 and current.inputs
        if shared and current in numbers:
            lines.append((f"{first}same as [{numbers[current]}]", current, True))
            return
        label = current.describe()
        if shared:
            numbers[current] = len(numbers) + 1
            label = f"[{numbers[current]}] {label}"
        lines.append((f"{first}{label}", current, False))
        below = current.inputs
        for position, each in enumerate(below):
            last = position == len(below) - 1
            draw(each, rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  "))

    draw(node, "", "")
    return lines


def explained(query: Query, rewritten: Rewritten, *, schemas: bool = False) -> str:
    """Return the meaning of a query, the rules that have made it cheaper, and the plan that would run."""
    rules = [f"  {number}. {_readable_rule(name)}" for number, name in enumerate(rewritten.applied, start=1)]
    sections = [
        "Logical plan",
        explain(query.node, schemas=schemas),
        "",
        "Rules applied",
        *(rules or ["  none"]),
        "",
        "Rewritten plan",
        explain(rewritten.node, schemas=schemas) if rules else "the same",
    ]
    if query.warnings:
        sections += ["", "Warnings", *(f"  {warning}" for warning in query.warnings)]
    return "\n".join(sections)


def _count(node: Node, counts: Counter[Node]) -> None:
    counts[node] += 1
    if counts[node] == 1:
        for each in node.inputs:
            _count(each, counts)


def _columns(node: Node) -> str:
    columns = ", ".join(
        f"{column.name} {column.type.value}{f' [{column.unit}]' if column.unit else ''}" for column in node.schema
    )
    return f"  ({columns})"


def _readable_rule(name: str) -> str:
    return name.replace("_", " ")
