"""Specimens of all operators: a module here declares those of one, or of a few that have most in common."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from inspect import isabstract
from typing import Any

from cluster.operators import Node
from tests.cluster.specimens.clause import Clause
from tests.cluster.specimens.specimen import Specimen


def _declared() -> Iterator[Specimen[Any]]:
    for name in sorted(f"{__name__}.{module.name}" for module in pkgutil.iter_modules(__path__)):
        for each in vars(importlib.import_module(name)).values():
            own = isinstance(each, type) and issubclass(each, Specimen) and each.__module__ == name
            if own and not isabstract(each) and hasattr(each, "node"):
                yield each()


_DECLARED = tuple(_declared())
SPECIMENS: dict[type[Node], Specimen[Any]] = {each.node: each for each in _DECLARED}
"""By class of node."""
_CLAUSES = [each.clause for each in SPECIMENS.values() if each.clause is not None]
CLAUSES: dict[str, Clause] = {each.word: each for each in sorted(_CLAUSES, key=lambda each: each.order)}
"""By the word that they begin with, in the order in which they apply."""
HOST_QUERIES: dict[str, str] = {name: text for each in _DECLARED for name, text in each.host_queries.items()}
"""By name: queries that all hosts answer."""
assert len(SPECIMENS) == len(_DECLARED), "one specimen for each node"
assert len(HOST_QUERIES) == sum(len(each.host_queries) for each in _DECLARED), "each query of hosts has its own name"
