"""What is true of an operation where it runs: its operator, the rows that it makes, and those that it keeps.

kind of a physical node     cluster/operators/time_window.py          plain data, stored in plan files
    operator                    cluster/fjord/operators/time_window.py    state and one method
    running kind                beside the operator                       how the one becomes the other, what that costs

There is one running kind for each kind of operation (:mod:`cluster.fjord.running_kinds`). What has no safe answer is
abstract; families answer for several kinds, and a class names its families in its first line.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, NoReturn, Protocol, TypeVar

from cluster.costs.selectivity import Sizes
from cluster.fjord.lookup_tables import Tables
from cluster.fjord.operator import Operator
from cluster.fjord.operators.origins import WithoutOrigins
from cluster.fjord.row_flow import RowFlow, as_they_come, lasting
from cluster.fjord.state_rows import NO_ROWS, StateRows
from cluster.physical.nodes import Fragment, OperatorNode, PaneWindow
from cluster.physical.operations import Operation

K = TypeVar("K", bound=Operation)


@dataclass(frozen=True, slots=True)
class RuntimeContext:
    """What operators are made with besides their operations.

    Parameters
    ----------
    fragment
        The fragment, whose subscribers are parameters of some operators; None for operators outside of one.
    tables
        The tables of lookups; None for operators that are only tried, not run.
    """

    fragment: Fragment | None = None
    tables: Tables | None = None

    def fragment_of(self, operation: Operation) -> Fragment:
        """Return the fragment, for an operation that needs its subscribers.

        Raises
        ------
        TypeError
            If there is none.
        """
        if self.fragment is None:
            refuse_alone(operation)
        return self.fragment


def refuse_alone(operation: Operation) -> NoReturn:
    """Raise an error: no operator is made of the operation alone."""
    raise TypeError(f"{operation.kind_name()} is instantiated with its fragment")


@dataclass(frozen=True, slots=True)
class InputFlows:
    """The rows that a node is given.

    Parameters
    ----------
    node
        The node.
    flows
        Those of its inputs, in their order.
    fragment
        The fragment that the node is of.
    rates
        Tuples per second, by stream; streams that have brought none are missing.
    sizes
        Of relations, by identity.
    """

    node: OperatorNode
    flows: Sequence[RowFlow]
    fragment: Fragment
    rates: Mapping[str, float]
    sizes: Sizes

    @property
    def first(self) -> RowFlow:
        """The rows of the first input."""
        return self.flows[0]

    @property
    def both(self) -> tuple[RowFlow, RowFlow]:
        """The rows of the left and of the right input."""
        left, right = self.flows
        return left, right


class StateEstimate(Protocol):
    """The estimate of a fragment's state, as far as it has come (:mod:`cluster.fjord.upper_estimates`)."""

    @property
    def fragment(self) -> Fragment:
        """The fragment."""
        ...

    @property
    def rates(self) -> Mapping[str, float]:
        """Tuples per second, by stream; streams that have brought none are missing."""
        ...

    def flow(self, node_id: str) -> RowFlow:
        """Return the rows of a node."""
        ...

    def alive(self, node: OperatorNode) -> float:
        """Return how many rows of a node are valid at one instant, at most."""
        ...


def alive_below(node: OperatorNode, estimate: StateEstimate) -> float:
    """Return how many rows of all inputs of a node are valid at one instant, at most."""
    return sum(estimate.alive(estimate.fragment.by_id[each]) for each in node.inputs)


class RunningKind(ABC, Generic[K]):
    """What is true of the operations of one kind where they run."""

    @abstractmethod
    def instantiate(self, operation: K, context: RuntimeContext) -> Operator:
        """Return the operator.

        Raises
        ------
        TypeError
            If it needs a fragment, and there is none.
        """

    @abstractmethod
    def with_origins(self, operation: K, context: RuntimeContext) -> Operator:
        """Return an operator whose rows have origins, whether those that it is given have some or not.

        Raises
        ------
        TypeError
            If there is none.
        """

    def dropping_origins(self, operation: K, context: RuntimeContext) -> Operator:
        """Return an operator that is given rows with origins, and whose own rows have none."""
        return WithoutOrigins(self.instantiate(operation, context))

    @abstractmethod
    def flow(self, operation: K, inputs: InputFlows) -> RowFlow:
        """Return the rows that it makes, as many as there may be."""

    @abstractmethod
    def kept(self, operation: K, node: OperatorNode, estimate: StateEstimate) -> StateRows:
        """Return what it keeps at most."""

    def alive(self, operation: K, node: OperatorNode, estimate: StateEstimate) -> float:
        """Return how many of its rows are valid at one instant, at most: as they flow, if nothing better is known."""
        del operation
        return estimate.flow(node.id).valid

    def window(self, operation: K, node: OperatorNode, fragment: Fragment) -> PaneWindow | None:
        """Return the window whose answers it merges, if that slides in steps; None if it merges none."""
        del operation, node, fragment
        return None


class Alone(RunningKind[K]):
    """A family: the operator is made of the operation alone."""

    @abstractmethod
    def operator(self, operation: K) -> Operator:
        """Return the operator."""

    def instantiate(self, operation: K, context: RuntimeContext) -> Operator:
        """Return the operator, wherever it runs."""
        del context
        return self.operator(operation)


class Subscribed(RunningKind[K]):
    """A family: what the subscribers of its fragment want is a parameter of the operator."""

    @abstractmethod
    def operator(self, operation: K, fragment: Fragment) -> Operator:
        """Return the operator."""

    def instantiate(self, operation: K, context: RuntimeContext) -> Operator:
        """Return the operator for the subscribers."""
        return self.operator(operation, context.fragment_of(operation))


class PassesNoOrigins:
    """A family: no rule asks for origins of its rows, which are of instants, or cut anyway.

    See :mod:`cluster.physical.rules.pieces`.
    """

    def with_origins(self, operation: Operation, context: RuntimeContext) -> Operator:
        """Raise an error."""
        del context
        raise TypeError(f"{operation.kind_name()} passes on no origins")


class PassesRows:
    """A family: it makes no more than a row of each row, which is valid no longer."""

    def flow(self, operation: Operation, inputs: InputFlows) -> RowFlow:
        """Return the rows of the first input."""
        del operation
        return as_they_come(inputs.first)


class MakesInstants:
    """A family: it makes no more than a row of each row, which is valid at one instant."""

    def flow(self, operation: Operation, inputs: InputFlows) -> RowFlow:
        """Return the rows of the first input, each valid at one instant."""
        del operation
        return lasting(inputs.first, 1)


class KeepsNothing:
    """A family: it keeps no rows, or only until the watermark has passed their beginnings."""

    def kept(self, operation: Operation, node: OperatorNode, estimate: StateEstimate) -> StateRows:
        """Return nothing."""
        del operation, node, estimate
        return NO_ROWS
