"""Golden estimates: the rows that operators of every kind make and keep, in some plans (golden_estimates.txt).

    9 Granularity <- 8    of a tuple 1, at once 1    a second 3e+05, made 0    valid 9 for 3, of a key 1    kept 0 of 16

How many rows one tuple makes, and how many of these are valid at once; how many rows there are in a second, and how
many more are made; how many are valid at an instant, for how many microseconds, and how many of one key; how many are
kept, of how many bytes each, and the bytes of lists besides.

After a change that is meant, write them anew with ``python -m tests.cluster.fjord.test_golden_estimates`` and read what
differs.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from cluster.fjord.running_kinds import running_kind
from cluster.fjord.upper_estimates import RowFlows, StateOfFragment
from cluster.physical.nodes import Fragment
from cluster.plan.names_read import RelationSize
from tests.cluster.physical.test_text import GOLDEN, LINE, plan_of

FILE = Path(__file__).with_name("golden_estimates.txt")
PLANS = ("relations-that-flow", "aggregates-of-aggregates")
"""Golden plans: seconds and minutes, some tuples a second."""


def fragments() -> Iterator[tuple[str, Fragment]]:
    """Yield plans with their names."""
    texts = {path.stem: path.read_text().partition(LINE)[0] for path in GOLDEN}
    for name in PLANS:
        yield from ((name, each) for each in plan_of(texts[name]).fragments)


def estimates(fragment: Fragment, per_second: float) -> Iterator[str]:
    """Yield a line about each operator; streams bring so many tuples a second."""
    rates = dict.fromkeys(fragment.streams, per_second)
    sizes = {each: RelationSize(1_000, 9_000) for each in fragment.relations}
    numbers = {node.id: number for number, node in enumerate(fragment.nodes, 1)}
    state = StateOfFragment(fragment, rates)
    for node, flow in RowFlows(fragment, rates, sizes):
        below = " ".join(str(numbers[each]) for each in node.inputs)
        kept = running_kind(node.operation).kept(node.operation, node, state)
        lists = f" and {kept.listed_bytes:.6g}" if kept.listed_bytes else ""
        parts = (
            f"{numbers[node.id]} {node.operation.kind_name()} <- {below}"
            if below
            else f"{numbers[node.id]} {node.operation.kind_name()}",
            f"of a tuple {flow.per_tuple:.6g}, at once {flow.at_once:.6g}",
            f"a second {flow.per_second:.6g}, made {flow.made_per_second:.6g}",
            f"valid {flow.valid:.6g} for {flow.lasting_us}, of a key {flow.per_key:.6g}",
            f"kept {kept.rows:.6g} of {kept.row_bytes}{lists}",
        )
        yield "    ".join(parts)


def golden() -> str:
    found = ((name, "\n".join(estimates(fragment, 20.0))) for name, fragment in fragments())
    return "\n".join(f"{name}\n{lines}\n" for name, lines in found)


def test_operators_are_expected_to_make_and_keep_what_they_were() -> None:
    assert golden() == FILE.read_text("utf-8")


if __name__ == "__main__":
    FILE.write_text(golden(), "utf-8")
