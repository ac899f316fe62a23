"""Which modules functions may come from, how long a call may take, and how much memory. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from cluster.errors import ClusterError

CALL_SECONDS = 5.0
"""How long a call may take, unless another limit is given."""
MEMORY_BYTES = 1024**3
"""How much memory a process of a function may take, unless another limit is given."""
_PATTERN = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*(\.\*|:[A-Za-z]\w*)?", re.ASCII)
PATTERN_SHAPE = "a module 'roads.wear', a package with all its modules 'roads.*', or one function 'roads.wear:score'"


class FunctionRules(msgspec.Struct, frozen=True):
    """What functions of users may be, and may take.

    Parameters
    ----------
    allowed
        Patterns of modules and functions; none allows no function.
    seconds
        How long a call for one batch may take.
    memory_bytes
        How much memory a process of a function may take, where the operating system can bound it.
    """

    allowed: tuple[str, ...] = ()
    seconds: float = CALL_SECONDS
    memory_bytes: int = MEMORY_BYTES

    def allow(self, module: str, attribute: str) -> bool:
        """Return whether a function may be used.

        >>> rules = FunctionRules(("roads.*", "fleet:age"))
        >>> rules.allow("roads.wear", "score"), rules.allow("roads", "f"), rules.allow("fleet", "f")
        (True, True, False)
        """
        return any(_matches(pattern, module, attribute) for pattern in self.allowed)


def checked_patterns(patterns: Iterable[str]) -> tuple[str, ...]:
    """Return patterns of modules and functions, if all can be read.

    Raises
    ------
    ClusterError
        If one cannot: everything is never allowed by one word.
    """
    found = tuple(patterns)
    for each in found:
        if _PATTERN.fullmatch(each) is None:
            raise ClusterError(f"{each!r} names no module of functions", hint=f"name {PATTERN_SHAPE}")
    return found


def listed(values: Iterable[str]) -> list[str]:
    """Return patterns of several options, or of one variable with commas between them."""
    return [name for value in values for each in value.split(",") if (name := each.strip())]


def _matches(pattern: str, module: str, attribute: str) -> bool:
    if pattern.endswith(".*"):
        package = pattern.removesuffix(".*")
        return module == package or module.startswith(f"{package}.")
    return pattern in (module, f"{module}:{attribute}")
