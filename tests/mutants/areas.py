"""What is mutated: the translator, the planner and the operators, without what only puts them into words."""

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
        "cluster/language/errors.py",  # words, and where they point
        "cluster/language/secrets.py",  # masks passwords in errors
        "cluster/plan/explain.py",  # from here on: pictures of plans
        "cluster/plan/lookups.py",
        "cluster/physical/difference.py",
        "cluster/physical/graph.py",
        "cluster/physical/placement.py",
        "cluster/physical/sharing.py",
        "cluster/physical/nodes.py",
        "cluster/physical/text.py",
        "cluster/physical/words.py",
        "cluster/fjord/counters.py",  # counts what operators do, and changes nothing of it
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
