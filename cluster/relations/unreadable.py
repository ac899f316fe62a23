"""The source of a relation whose statement an earlier version accepted and this one refuses: it cannot be read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from cluster.relations.source import SourceSchemaError

if TYPE_CHECKING:
    from cluster.language.comparisons import Comparison
    from cluster.operators.columns import Schema
    from cluster.relations.source import SourceColumn
    from protocols.errors import FjordError


@dataclass(frozen=True, slots=True)
class UnreadableSource:
    """A source of which only the error is known.

    Parameters
    ----------
    error
        The error of the statement that names it.
    """

    error: FjordError
    shown: str = "unknown"

    def columns(self) -> tuple[SourceColumn, ...]:
        """Raise the error."""
        self._fail()

    def rows(self, columns: Schema, condition: tuple[Comparison, ...] = ()) -> NoReturn:  # noqa: ARG002 - a source's signature
        """Raise the error."""
        self._fail()

    def estimate(self) -> int | None:
        """Raise the error."""
        self._fail()

    def _fail(self) -> NoReturn:
        hint = "drop the relation and create it anew"
        raise SourceSchemaError(f"its statement cannot be read: {self.error.message}; {hint}")
