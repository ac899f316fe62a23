"""What lookups of a running plan made of each tuple lately, for estimates of plans that look up in another order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from cluster.fjord.operator_statistics import Rates
from cluster.fjord.upstream_dataflow import lookup_name
from cluster.operators import TableLookup
from cluster.physical.nodes import Fragment, Host, PhysicalPlan
from cluster.physical.operations import Lookup, Scan


def measured_partners(plan: PhysicalPlan, rates: Callable[[str], Rates]) -> dict[tuple[str, TableLookup], float]:
    """Return the rows that lookups next to scans make of a row, by stream and lookup, as far as rows have come.

    Earlier lookups may have dropped tuples; whether one is found in a relation is assumed not to depend on others.

    Parameters
    ----------
    plan
        The plan that runs.
    rates
        Of an operator, by its name.
    """
    found: dict[tuple[str, TableLookup], float] = {}
    for name, key in _named(plan).items():
        made = None if key is None else rates(name).rows_out_per_row
        if key is not None and made is not None:
            found[key] = made
    return found


def _named(plan: PhysicalPlan) -> dict[str, tuple[str, TableLookup] | None]:
    """Return lookups by the names that they have while they run; None where two have one name, on different hosts."""
    found: dict[str, tuple[str, TableLookup] | None] = {}
    for host in Host:
        for name, key in _of_host(plan.hosted(host).fragments):
            found[name] = key if found.get(name, key) == key else None
    return found


def _of_host(fragments: Iterable[Fragment]) -> Iterator[tuple[str, tuple[str, TableLookup]]]:
    """Yield lookups of live tuples with their names, numbered as they are made (cluster/fjord/upstream_dataflow.py)."""
    numbers: dict[tuple[object, ...], int] = {}
    for fragment in fragments:
        below: dict[str, tuple[object, ...]] = {}
        for node in fragment.next_to_scan:
            operation = node.operation
            if isinstance(operation, Scan):
                below[node.id] = (operation.stream, operation.events, operation.history)
            elif isinstance(operation, Lookup):
                key = below[node.id] = (*below[node.inputs[0]], operation)
                if key in numbers:
                    continue
                numbers[key] = len(numbers) + 1
                (stream,) = operation.streams
                if key[2] is None:  # those of a past have other names
                    yield lookup_name(operation.table, numbers[key], stream), (stream, operation.table)
            elif node.inputs and node.inputs[0] in below:
                below[node.id] = below[node.inputs[0]]
