"""What a plant is: a change of the product's code at run time that breaks one promise."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Simulation(Enum):
    """The simulation that is to find a plant."""

    CLUSTER = "cluster"
    """A cluster among scripted proxies."""
    PROXIES = "proxies"
    """A deployment from the motes to a cluster that only stores batches: a quarter of the work of a whole one."""
    DEPLOYMENT = "deployment"
    """A whole deployment, from the motes to the subscriber."""


class Plant(NamedTuple):
    """A fault: its name, the promise that it breaks, where it is to be found, and what plants it."""

    name: str
    promise: str
    simulation: Simulation
    plant: Callable[[], None]


class Plants:
    """Plants that one simulation is to find, noted by decorating what plants them.

    Parameters
    ----------
    simulation
        That is to find them.
    """

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._plants: list[Plant] = []

    def __iter__(self) -> Iterator[Plant]:
        return iter(self._plants)

    def planted(self, name: str, promise: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
        """Note a plant."""

        def note(plant: Callable[[], None]) -> Callable[[], None]:
            self._plants.append(Plant(name, promise, self._simulation, plant))
            return plant

        return note


def put(owner: Any, name: str, replacement: object) -> None:
    """Put something in place of an attribute of the product, a function, method or constant.

    Raises
    ------
    AttributeError
        If the product has no such attribute any more: then the plant has to follow it.
    """
    getattr(owner, name)
    setattr(owner, name, replacement)


def nothing(*_: Any, **__: Any) -> None:
    """Do nothing."""
