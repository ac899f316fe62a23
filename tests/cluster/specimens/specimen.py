"""What tests know of an operator of the algebra: its meaning, how it is drawn, and cases of what runs of it.

One module declares one operator, or a few that have most in common; suites go through all of them:

==================  ================================================================  =============================
``sql``, ``rows``   what it means, from docs/reference/sql.md and the papers alone    tests/cluster/oracle
``draw``            how random plans have it                                          tests/cluster/oracle
``conformance``     how it runs: with any cuts, orders and restarts                   tests/cluster/fjord/operators
``host_queries``    queries that all hosts answer                                     tests/cluster/local, spark
``clause``          how random texts have it, and what it means there                  tests/cluster/oracle
``golden``          a query whose plan and estimates are compared with golden ones    tests/cluster/physical, fjord
==================  ================================================================  =============================
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from cluster.fjord.operator import Operator
from cluster.operators import Node
from tests.cluster.fjord.operators.conformance import Case
from tests.cluster.specimens.clause import Clause

if TYPE_CHECKING:
    from tests.cluster.specimens.drawing import Drawing
    from tests.cluster.specimens.snapshot_sql import SnapshotSql

N = TypeVar("N", bound=Node)
Cases = Mapping[type[Operator], tuple[Case, ...]]
"""By class of what runs of an operator: cases for the suite of conformance."""
Stamped = tuple[int, tuple[Any, ...]]
"""A row, and an instant at which it is valid."""


class Specimen(ABC, Generic[N]):
    """An operator for tests.

    Attributes
    ----------
    node
        Its class.
    weight
        How often random plans have it; 0 if only random texts and plans of its own tests have it.
    conformance
        What runs of it.
    host_queries
        Queries over the streams of tests/cluster/local/host_cases.py, by name.
    golden
        The name of one among the queries of hosts whose plan and estimates are golden; None if it is in that of another
        operator.
    clause
        How texts write it, if that is a clause with a quantity behind an item of FROM.
    """

    node: type[N]
    weight: ClassVar[int] = 1
    conformance: ClassVar[Cases] = {}
    host_queries: ClassVar[Mapping[str, str]] = {}
    golden: ClassVar[str | None] = None
    clause: ClassVar[Clause | None] = None

    def draw(self, drawing: Drawing, depth: int) -> Node:
        """Draw a plan with it on top, over plans that are less deep."""
        raise NotImplementedError(f"{self.node.__name__} is drawn by texts")

    def reach_us(self, node: N) -> int:
        """How long after the last change of its input its answer may still change, in small plans."""
        return 0

    def granule_us(self, node: N) -> int:
        """The step at whose multiples its answer is guaranteed."""
        return 1


class DefinedInSql(Specimen[N]):
    """An operator whose meaning is written in DuckDB's words, over snapshots: what it does to intervals follows.

    Its table expression has the columns of tests/cluster/specimens/snapshot_sql.py. Instants begin at 0 and end with
    ``query.last``, after which nothing changes: what looks ahead takes the last snapshot once more.
    """

    @abstractmethod
    def sql(self, node: N, query: SnapshotSql) -> str:
        """Return the table expression of its snapshots, with those of its inputs: ``query.of(node.input)``."""


class DefinedByRows(Specimen[N]):
    """An operator that takes and makes rows valid at one instant, and whose meaning is found row by row."""

    @abstractmethod
    def rows(self, node: N, inputs: Sequence[Sequence[Stamped]], instants: int) -> list[Stamped]:
        """Return its rows, given those of its inputs at the instants before `instants`, in order."""


class DefinedByRewriting(Specimen[N]):
    """An operator that stands for a plan of others."""

    @abstractmethod
    def as_plan(self, node: N) -> Node:
        """Return the plan that it stands for."""


class Unary(DefinedInSql[N]):
    """An operator over one input, that is drawn over any."""

    @abstractmethod
    def over(self, drawing: Drawing, node: Node) -> Node:
        """Draw it over a plan."""

    def draw(self, drawing: Drawing, depth: int) -> Node:
        """Draw it over a plan that is less deep."""
        return self.over(drawing, drawing.below(depth - 1))
