"""Walking over expressions: each distinct node once, without recursion, because they may be deep."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from typing import TypeVar

from cluster.expressions.nodes import Column, Expression, UserCall
from cluster.expressions.user_functions import UserFunction
from cluster.shared_nodes import remembered

T = TypeVar("T")


def from_below(expression: Expression, known: Callable[[Expression], bool] | None = None) -> Iterator[Expression]:
    """Yield the nodes of an expression from the leaves up, left before right, each object once.

    Parameters
    ----------
    expression
        The expression.
    known
        Whether a node and all nodes below it can be skipped; by default, none.
    """
    seen: set[int] = set()
    waiting = [(expression, False)]
    while waiting:
        node, below_done = waiting.pop()
        if below_done:
            yield node
        elif id(node) not in seen and not (known is not None and known(node)):
            seen.add(id(node))
            operands = node.operands
            if not operands:
                yield node
                continue
            waiting.append((node, True))
            waiting.extend([(each, False) for each in reversed(operands)])


def found_from_below(function: Callable[[Expression, Sequence[T]], T]) -> Callable[[Expression], T]:
    """Return a function of expressions that is computed from its values for the operands, once for each node."""
    key = f"{function.__module__}.{function.__qualname__}"

    @wraps(function)
    def found(expression: Expression) -> T:
        if key not in expression.__dict__:
            for node in from_below(expression, lambda each: key in each.__dict__):
                node.__dict__[key] = function(node, [each.__dict__[key] for each in node.operands])
        answer: T = expression.__dict__[key]
        return answer

    return found


@remembered
def columns_read(expression: Expression) -> frozenset[str]:
    """Return the columns that an expression reads."""
    return frozenset([node.name for node in from_below(expression) if isinstance(node, Column)])


@remembered
def column_uses(expression: Expression) -> Mapping[str, int]:
    """Return how often an expression reads each column, counting shared parts wherever they occur."""
    uses: dict[int, int] = {id(expression): 1}
    found: dict[str, int] = {}
    for node in reversed(list(from_below(expression))):
        count = uses[id(node)]
        if isinstance(node, Column):
            found[node.name] = found.get(node.name, 0) + count
        for each in node.operands:
            uses[id(each)] = uses.get(id(each), 0) + count
    return found


@remembered
def node_count(expression: Expression) -> int:
    """Return of how many distinct nodes an expression consists."""
    return len({*from_below(expression)})


def rebuilt(expression: Expression, change: Callable[[Expression], Expression]) -> Expression:
    """Return an expression with every node replaced, from the leaves up, by the result of `change`.

    Parameters
    ----------
    expression
        The expression.
    change
        A function that gets each node once, above operands that have been replaced already.
    """
    made: dict[int, Expression] = {}
    for node in from_below(expression):
        old = node.operands
        new = tuple([made[id(each)] for each in old])
        same = all(one is other for one, other in zip(old, new, strict=True))
        made[id(node)] = change(node if same else node.over(new))
    return made[id(expression)]


def substituted(expression: Expression, columns: Mapping[str, Expression]) -> Expression:
    """Return an expression with every column replaced by another expression.

    Parameters
    ----------
    expression
        The expression.
    columns
        Replacements by name, in parentheses where these may be needed; one for each column that it reads.
    """
    return rebuilt(expression, lambda node: columns[node.name] if isinstance(node, Column) else node)


@remembered
def functions_called(expression: Expression) -> frozenset[UserFunction]:
    """Return the functions of users that an expression calls."""
    return frozenset([node.function for node in from_below(expression) if isinstance(node, UserCall)])
