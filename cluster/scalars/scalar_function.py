"""What is true of a scalar function of FjordSQL: a row of a table, beside what computes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from protocols.wire.streams import FieldType


class Family(Enum):
    """Types that can be compared and mixed with each other."""

    BOOLEAN = "a boolean"
    NUMBER = "a number"
    TEXT = "text"
    TIMESTAMP = "a timestamp"
    LOCAL = "a local timestamp"
    INTERVAL = "an interval"
    INTEGER = "an integer"
    ANY = "any value"


FAMILY_OF: dict[FieldType, Family] = {
    FieldType.BOOLEAN: Family.BOOLEAN,
    FieldType.INTEGER: Family.NUMBER,
    FieldType.REAL: Family.NUMBER,
    FieldType.TEXT: Family.TEXT,
    FieldType.TIMESTAMP: Family.TIMESTAMP,
    FieldType.LOCAL_TIMESTAMP: Family.LOCAL,
    FieldType.INTERVAL: Family.INTERVAL,
}


class Result(Enum):
    """The type of a function's result, where it depends on its arguments."""

    FIRST = "that of the first argument"
    COMMON = "the common type of all arguments"


@dataclass(frozen=True, slots=True)
class ScalarFunction:
    """A scalar function.

    Parameters
    ----------
    name
        As written in FjordSQL.
    compute
        From series of the arguments, the series of the results; all as long as the others, or constants of one value.
    parameters
        The family of each argument; the last one also stands for all further ones.
    result
        The type of the result.
    slots
        Where sqlglot's syntax tree keeps the arguments, in order; the last may hold a list.
    required
        How many arguments there must be; None for all.
    aliases
        Other names under which it can be called.
    own
        True if sqlglot does not know it, or reads it otherwise: then it has a class of ours in syntax trees.
    of_constants
        True if all arguments but the first are written out: of these, `compute` makes the function of the first.
    keeps_unit
        True if a value in mph stays one in mph.
    null_if_null
        True if the result can be NULL only where an argument is.
    """

    name: str
    compute: Callable[..., Any]
    parameters: tuple[Family, ...]
    result: FieldType | Result
    slots: tuple[str, ...] = ("this",)
    required: int | None = None
    aliases: tuple[str, ...] = ()
    own: bool = False
    of_constants: bool = False
    keeps_unit: bool = False
    null_if_null: bool = True

    @property
    def least(self) -> int:
        """How many arguments there must be."""
        return len(self.slots) if self.required is None else self.required

    @property
    def several(self) -> bool:
        """True if it takes any number of arguments from :attr:`least` on."""
        return "expressions" in self.slots

    @property
    def arity(self) -> str:
        """How many arguments it takes, in words."""
        if self.several:
            return "one argument or more"
        counts = [_COUNTED[count] for count in range(self.least, len(self.slots) + 1)]
        return f"{' or '.join(counts)} argument{'' if counts == ['one'] else 's'}"

    def shape(self, name: str) -> str:
        """Return how a call under a name is written."""
        words = [_PARAMETER_WORDS.get(slot) or family.value.split()[-1] for slot, family in self.arguments]
        needed, optional = words[: self.least], words[self.least :]
        more = ", ..." if self.several else "".join(f"[, {word}]" for word in optional)
        return f"{name}({', '.join(needed)}{more})"

    @property
    def arguments(self) -> list[tuple[str, Family]]:
        """Each slot, and the family of its argument."""
        last = len(self.parameters) - 1
        return [(slot, self.parameters[min(place, last)]) for place, slot in enumerate(self.slots)]


_COUNTED = ("no", "one", "two", "three", "four")
_PARAMETER_WORDS = {
    **{
        name: name for name in ("start", "length", "decimals", "part", "characters", "fill", "pattern", "group", "path")
    },
    **{name: name for name in ("lat1", "lon1", "lat2", "lon2")},
    "delimiter": "separator",
    "part_index": "number",
    "replacement": "replacement",
}
