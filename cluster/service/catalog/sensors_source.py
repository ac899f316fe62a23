"""The catalog of sensors as a relation: a row per sensor, a column per property that any sensor ever had."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path

import polars as pl

from cluster.language.columns import Column, Schema
from cluster.language.comparisons import Comparison
from cluster.relations.fitting import POLARS_TYPES, settled
from cluster.relations.source import Limits, SourceColumn, SourceStartingError
from cluster.service.catalog.sensor_catalog import SensorCatalog
from protocols.wire.streams import FieldType

SETTLING_SECONDS = 10.0
"""From a connection to the broker until all that it retains, and all proxies that connect again, have been heard."""

_FIELD_TYPES = {kind: field for field, kind in POLARS_TYPES.items()}


class SensorsSource:
    """The catalog as a source.

    Columns never go, as queries may read them: what no sensor has is NULL. A property keeps the type it had first;
    values of another type that cannot be converted are NULL.

    Parameters
    ----------
    read
        Returns the catalog as a table; any thread may call it.
    limits
        What it may take.
    connected_at
        Returns when the catalog began to fill; None if it has not. Until it had time to, the source is away, so that a
        cluster that starts again does not take all sensors for gone.
    clock
        Seconds that only go forward.
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
    def of(cls, catalog: SensorCatalog, *, limits: Limits | None = None) -> SensorsSource:
        """Return the source of a catalog."""
        return cls(
            catalog.relation,
            limits=limits,
            connected_at=lambda: catalog.connected_at,
        )

    def remember(self, snapshot: Path) -> None:
        """Take up the columns of a version that was made before."""
        for name, dtype in pl.scan_parquet(snapshot, glob=False).collect_schema().items():
            self._learn(name, dtype)

    def schema(self) -> Schema:
        """Return the columns there are and were."""
        return self._schema(self._read())

    def columns(self) -> tuple[SourceColumn, ...]:
        """Return the columns there are and were, as a source does."""
        return tuple(SourceColumn(column.name, column.type, column.type.value) for column in self.schema())

    def rows(self, columns: Schema, condition: tuple[Comparison, ...] = ()) -> pl.DataFrame:
        """Return the rows; a column that no sensor has is NULL."""
        since = self._connected_at()
        if since is None or self._clock() - since < SETTLING_SECONDS:
            raise SourceStartingError(
                "the broker has been connected to only just, and sensors are still being announced"
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
            self._learn(name, dtype)
        return tuple(self._known.values())

    def _learn(self, name: str, dtype: pl.DataType) -> None:
        self._known.setdefault(name.casefold(), Column(name, _FIELD_TYPES.get(dtype.base_type(), FieldType.TEXT)))
