"""Versions of bridges: which of them a mapping of fields is for.

Pure. Versions are dotted numbers; what follows these (``2.1.0-dev``) does not count.
"""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass
from typing import Any

_VERSION = re.compile(r"\s*v?([0-9]{1,9}(?:\.[0-9]{1,9}){0,7})(?![0-9])", re.ASCII | re.IGNORECASE)
_CONDITION = re.compile(r"\s*(<=|>=|==|!=|<|>)\s*([0-9]{1,9}(?:\.[0-9]{1,9}){0,7})\s*", re.ASCII)
_OPERATORS = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
SHOWN = 40
"""Letters of a version that messages show."""


@dataclass(frozen=True, slots=True)
class VersionRange:
    """Conditions that hold all at once, such as ``>=1.30, <2``.

    Examples
    --------
    >>> VersionRange.parse(">=1.30, <2").includes((1, 42, 0)), VersionRange.parse("<2").includes((2, 0, 0))
    (True, False)
    """

    conditions: tuple[tuple[str, tuple[int, ...]], ...]

    @classmethod
    def parse(cls, text: str) -> VersionRange:
        """Return the range written `text`.

        Raises
        ------
        ValueError
            If it has another form.
        """
        conditions = []
        for part in text.split(","):
            found = _CONDITION.fullmatch(part)
            if found is None:
                raise ValueError(f"{part.strip()[:SHOWN]!r} is no condition on a version; write <2 or >=1.30, <2")
            conditions.append((found[1], _numbers(found[2])))
        return cls(tuple(conditions))

    def includes(self, version: tuple[int, ...]) -> bool:
        """Return whether a version lies in this range."""
        return all(_OPERATORS[sign](_padded(version), _padded(bound)) for sign, bound in self.conditions)


def read_version(found: Any) -> tuple[int, ...] | None:
    """Return the numbers of a version as a bridge writes it; None if it begins with none.

    >>> read_version("2.1.0-dev"), read_version("V1.42"), read_version(None)
    ((2, 1, 0), (1, 42), None)
    """
    text = str(found) if isinstance(found, str | int | float) and not isinstance(found, bool) else ""
    match = _VERSION.match(text[:256])
    return None if match is None else _numbers(match[1])


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


def _padded(version: tuple[int, ...]) -> tuple[int, ...]:
    """Return a version as long as any: 2 is 2.0."""
    return version + (0,) * (8 - len(version))
