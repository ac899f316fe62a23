"""The areas that are mutated: translator, planner and operators, without modules that only make texts."""

from __future__ import annotations

from pathlib import Path

AREAS: dict[str, tuple[str, ...]] = {
    "translator": ("cluster/language/*.py",),
    "rules": (
        "cluster/expressions/*.py",
        "cluster/plan/*.py",
        "cluster/plan/rules/*.py",
        "cluster/physical/*.py",
        "cluster/physical/rules/*.py",
    ),
    "operators": ("cluster/fjord/*.py", "cluster/fjord/operators/*.py"),
}
LEFT_OUT = frozenset(
    {
        "cluster/language/errors.py",  # texts and places, and masked passwords
        "cluster/plan/explain.py",  # from here on: plans as text
        "cluster/plan/lookups.py",
        "cluster/physical/difference.py",
        "cluster/physical/text.py",
        "cluster/physical/placement.py",
        "cluster/physical/nodes.py",
        "cluster/fjord/counters.py",  # counts the work of operators without changing it
    }
)


def files_of(root: Path) -> dict[str, list[str]]:
    """Return the files of each area, relative to the root of the repository, in order."""
    return {
        area: sorted(
            name
            for pattern in patterns
            for path in root.glob(pattern)
            if (name := path.relative_to(root).as_posix()) not in LEFT_OUT and path.name != "__init__.py"
        )
        for area, patterns in AREAS.items()
    }
