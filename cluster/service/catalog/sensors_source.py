"""The catalog of sensors as a relation: a row per sensor, a column per property that any sensor ever had."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path

import polars as pl

from cluster.language.comparisons import Comparison
from cluster.operators.columns import Column, Schema
from cluster.relations.fitting import POLARS_TYPES, settled
from cluster.relations.source import Limits, SourceColumn, SourceStartingError
from cluster.service.catalog.sensor_catalog import SensorCatalog
from protocols.wire.streams import FieldType

SETTLING_SECONDS = 10.0
"""From a connection to the broker until retained messages, and those of returning proxies, have come."""

_FIELD_TYPES = {kind: field for field, kind in POLARS_TYPES.items()}


class SensorsSource:
    """The catalog as a source.

    Columns are never removed, because queries may read them: a property that no sensor has any more is NULL. A property
    keeps its first type; values of another type that cannot be converted are NULL.

    Parameters
    ----------
    read
        Returns the catalog as a table; any thread may call it.
    limits
        Limits of its size.
    connected_at
        Returns when the catalog began to fill; None if it has not. Until it has had time to, the source is away: after
        a restart of the cluster, sensors must not seem to have been removed.
    clock
        Seconds of a monotonic clock.
    """

    shown = "catalog:sensors"

    def __init__(
        self,
        read: Callable[[], pl.DataFrame],
        *,
        limits: Limits | None = None,
        connected_at: Callable[[], float | None] = lambda: -math.inf,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read = read
        self._limits = limits or Limits()
        self._connected_at = connected_at
        self._clock = clock
        self._known: dict[str, Column] = {}

    @classmethod
    def of(
        cls, catalog: SensorCatalog, *, limits: Limits | None = None, clock: Callable[[], float] = time.monotonic
    ) -> SensorsSource:
        """Return the source of a catalog."""
        return cls(
            catalog.relation,
            limits=limits,
            connected_at=lambda: catalog.connected_at,
            clock=clock,
        )

    def remember(self, snapshot: Path) -> None:
        """Add the columns of an earlier version."""
        for name, dtype in pl.scan_parquet(snapshot, glob=False).collect_schema().items():
            self._add_column(name, dtype)

    def schema(self) -> Schema:
        """Return the present and all earlier columns."""
        return self._schema(self._read())

    def columns(self) -> tuple[SourceColumn, ...]:
        """Return the present and all earlier columns, as a source does."""
        return tuple(SourceColumn(column.name, column.type, column.type.value) for column in self.schema())

    def rows(self, columns: Schema, condition: tuple[Comparison, ...] = ()) -> pl.DataFrame:
        """Return the rows; a column that no sensor has is NULL."""
        since = self._connected_at()
        if since is None or self._clock() - since < SETTLING_SECONDS:
            raise SourceStartingError(
                "the cluster has just connected to the broker, and sensors are still being announced"
            )
        found = self._read()
        by_folded = {name.casefold(): name for name in found.columns}
        frame = found.select(
            (
                pl.col(by_folded[column.name.casefold()]).cast(POLARS_TYPES[column.type], strict=False)
                if column.name.casefold() in by_folded
                else pl.lit(None, dtype=POLARS_TYPES[column.type])
            ).alias(column.name)
            for column in columns
        )
        self._limits.check(frame.height, int(frame.estimated_size()))
        return settled(frame, columns, condition)

    def estimate(self) -> int | None:
        """Return how many sensors there are."""
        return self._read().height

    def _schema(self, frame: pl.DataFrame) -> Schema:
        for name, dtype in frame.schema.items():
            self._add_column(name, dtype)
        return tuple(self._known.values())

    def _add_column(self, name: str, dtype: pl.DataType) -> None:
        self._known.setdefault(name.casefold(), Column(name, _FIELD_TYPES.get(dtype.base_type(), FieldType.TEXT)))
