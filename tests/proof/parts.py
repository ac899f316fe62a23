"""What `make proof` runs: searches and tests that take too long for `make test`, each a target of the Makefile."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Part:
    """One part.

    Parameters
    ----------
    name
        What `--only` calls it.
    command
        Usually `make`, a target and its sizes.
    says
        What is in the last line that has its figures, as a regular expression.
    """

    name: str
    command: tuple[str, ...]
    says: str = r"\d"

    @property
    def shown(self) -> str:
        """The command, as it is typed."""
        return " ".join(self.command)


def made(name: str, target: str, *, says: str = Part.says, **sizes: int) -> Part:
    """Return a part that is a target of the Makefile with its sizes."""
    return Part(name, ("make", target, *(f"{size}={value}" for size, value in sizes.items())), says)


PARTS = (
    made("tests", "test-proof"),
    made("examples", "examples", TIMES=1),
    made("coalescing", "coalescing", STREAMS=10_000),
    made("oracle", "oracle", says=r"\d pairs in .*mismatches", PAIRS=20_000),
    made("fuzz", "fuzz", MINUTES=10),
    made("simulate", "simulate", MINUTES=60),
    made("planted", "planted"),
    made("power-cuts", "test-power-cuts", CUTS=200, SPARK_CUTS=20),
    made("faults", "test-faults", SCHEDULES=50, KILLS=20),
    made("migrations", "migrations", MIGRATIONS=10_000, SPARK=20),
    made("neighbours", "neighbours"),
    made("mutants", "mutants", COUNT=200),
)
"""From what finds a fault soonest to what takes longest."""
