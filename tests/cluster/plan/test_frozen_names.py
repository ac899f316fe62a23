"""What plan files, states and other programs know by name keeps its name, however classes and modules are called.

``python -m tests.cluster.plan.test_frozen_names`` adds new names to the list. Nothing is taken from it.
"""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from cluster.operators import NODES
from cluster.physical.operations import OPERATIONS
from tests.cluster.fjord.operators.test_conformance import CASES

ROOT = Path(__file__).parents[3]
FROZEN = Path(__file__).with_name("frozen_names.txt")
GROUPS = ("fjord.commands", "fjord.language", "fjord.replays")


def names() -> Iterator[str]:
    """Yield a line for each name: of nodes and their fields, of operators and their states, of what states hold."""
    for what, kinds in (("node", tuple(NODES.values())), ("operator", OPERATIONS)):
        for kind in kinds:
            found = msgspec.inspect.type_info(kind)
            assert isinstance(found, msgspec.inspect.StructType)
            yield f"{what} {found.tag}"
            yield from (f"{what} {found.tag} {field.encode_name}" for field in found.fields)
    yield from (f"state {kind.state_name()}" for kind in OPERATIONS)
    kept = {name for cases in CASES.values() for case in cases for name in case.make().save()}
    yield from (f"kept {name}" for name in sorted(kept))
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    yield from (f"{group} {name}" for group in GROUPS for name in groups[group])


def test_names_stay_and_new_ones_are_listed() -> None:
    frozen = FROZEN.read_text("utf-8").splitlines()
    assert len(frozen) > 300
    assert sorted(set(frozen) - set(names())) == [], "a name has changed, and what is on disk has the old one"
    assert sorted(set(names()) - set(frozen)) == [], "new names: run python -m tests.cluster.plan.test_frozen_names"


def test_names_are_written_beside_the_classes() -> None:
    """A class that is renamed keeps its name on disk: it is a literal."""
    for kind in (*NODES.values(), *OPERATIONS):
        assert f'tag="{kind.kind_name()}"' in inspect.getsource(kind)


if __name__ == "__main__":
    known = FROZEN.read_text("utf-8").splitlines() if FROZEN.exists() else []
    FROZEN.write_text("\n".join([*known, *(each for each in names() if each not in known)]) + "\n", "utf-8")
