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
    for name in sorted(module.name for module in pkgutil.iter_modules(__path__)):
        for each in vars(importlib.import_module(f"{__name__}.{name}")).values():
            if isinstance(each, type) and issubclass(each, Specimen) and not isabstract(each) and hasattr(each, "node"):
                yield each()


SPECIMENS: dict[type[Node], Specimen[Any]] = {each.node: each for each in _declared()}
"""By class of node."""
_CLAUSES = [each.clause for each in SPECIMENS.values() if each.clause is not None]
CLAUSES: dict[str, Clause] = {each.word: each for each in sorted(_CLAUSES, key=lambda each: each.place)}
"""By the word that they begin with, in the order in which they apply."""
