"""The prices of operators on this machine, and what running queries are expected to cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cluster.costs.estimate_text import Measured, estimate_text
from cluster.costs.prices import SHIPPED, Prices, prices_text, read_prices
from cluster.costs.selectivity import expected_partners
from cluster.errors import PlanError, StorageError
from cluster.fjord.measured_plans import measured_nodes, measured_partners, measured_selectivities
from cluster.fjord.operator_statistics import OperatorStatistics, Rates
from cluster.physical.nodes import Fragment
from cluster.physical.text import named, queries_counted
from cluster.plan.explain import explain
from cluster.service.catalog.planning import Planning, PlanningContext
from cluster.service.queries.query_limits import QueryLimits
from cluster.service.registry.registry import Registry
from cluster.service.registry.running_queries import RegisteredQuery
from cluster.storage.synced_files import write_whole
from protocols.event_log import get_logger

log = get_logger(__name__)

FILE = "prices.json"
MOST_BYTES = 1024**2
"""No more is read of a file: a larger one holds no prices."""


class OperatorPrices:
    """Reads the file when it has changed; a file that cannot be read is noted once, and shipped prices hold.

    Parameters
    ----------
    folder
        The data folder; None for shipped prices.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._path = None if folder is None else folder / FILE
        self._seen: tuple[int, int] | None = None
        self._prices = SHIPPED

    def current(self) -> Prices:
        """Return the prices that hold now."""
        if self._path is None:
            return SHIPPED
        try:
            found = self._path.stat()
            seen = (found.st_mtime_ns, found.st_size)
            if seen != self._seen:
                self._seen, self._prices = seen, SHIPPED
                self._prices = read_prices(self._path.read_bytes()[:MOST_BYTES])
        except FileNotFoundError:
            self._seen, self._prices = None, SHIPPED
        except (OSError, PlanError) as error:
            log.warning("prices of operators cannot be read", file=str(self._path), reason=str(error))
        return self._prices


def check_folder(folder: Path) -> None:
    """Raise unless there is a data folder.

    Raises
    ------
    StorageError
        If there is none.
    """
    if not folder.is_dir():
        raise StorageError(
            f"there is no data folder {folder}", hint="name that of the cluster with --data; `fjord cluster` makes it"
        )


def write_prices(folder: Path, prices: Prices) -> Path:
    """Write prices into a data folder, where a cluster that runs finds them at once; return the file.

    Raises
    ------
    StorageError
        If there is no such folder, or it cannot be written to.
    """
    check_folder(folder)
    path = folder / FILE
    try:
        write_whole(path, prices_text(prices))
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror or error}") from error
    return path


@dataclass(frozen=True, slots=True)
class QueryEstimates:
    """Estimates the plans of running queries.

    Parameters
    ----------
    registry
        The queries that run.
    limits
        Has the rates of streams.
    operators
        What the operators of the running plan do.
    prices
        What steps of operators cost here.
    planning
        Where this is computed.
    context
        Returns that in which queries are planned: it has the sizes of relations.
    """

    registry: Registry
    limits: QueryLimits
    operators: OperatorStatistics
    prices: OperatorPrices
    planning: Planning
    context: Callable[[], PlanningContext]

    async def running(self, name: str) -> str:
        """Return as text the plan of a query that runs: what is expected of each operator, and what it does.

        Raises
        ------
        UnknownQueryError
            If none of this name runs.
        """
        query, physical = self.registry.query(name), self.registry.physical
        rates, prices = self.limits.rates(query.node.streams), self.prices.current()
        sizes = self.context().sizes

        def text() -> str:
            fragment = physical.by_query[query.identity]
            selectivities = measured_selectivities(physical, self.operators.rates)
            measured = {
                node: _measured(each)
                for node, each in measured_nodes(query.node, fragment, self.operators.rates).items()
            }
            partners = expected_partners(query.node, sizes) | measured_partners(physical, self.operators.rates)
            table = estimate_text(query.node, rates, selectivities, prices, measured, partners=partners)
            bounds = self.limits.bounds_text(physical.alone(query.identity), rates)
            described = f"{table}\n{bounds}" if table else explain(query.node)
            return f"{_heading(query, fragment)}\n{described}\n{_source(prices)}\n"

        return await self.planning.run(text)


def _measured(rates: Rates) -> Measured:
    return Measured(rates.rows_out_per_second, rates.busy * 1e6, rates.microseconds_per_row)


def _heading(query: RegisteredQuery, fragment: Fragment) -> str:
    others = [each.query for each in fragment.subscribers if each.identity != query.identity]
    shared = f", which {queries_counted(len(others))} more subscribe to: {named(others)}" if others else ""
    return f"{query.name} runs in fragment {fragment.identity}{shared}"


def _source(prices: Prices) -> str:
    if prices is SHIPPED:
        return "Work as priced by default; `fjord plan calibrate` measures the prices of this machine."
    return f"Work as priced {prices.measured or 'by hand'} ({prices.machine or FILE})."
