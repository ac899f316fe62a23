"""Replay of recorded readings: every sensor of a CSV or Parquet file becomes a mote that senses what was recorded."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl
from polars.exceptions import PolarsError

from firmware_sim.errors import TraceError
from firmware_sim.mote_events import MoteDescription
from protocols.errors import SchemaError
from protocols.packets import SampleValue
from protocols.streams import Field, FieldType, StreamSchema

MAX_SENSORS = 100_000


@dataclass(frozen=True, slots=True)
class TraceColumns:
    """What the columns of a trace mean.

    Parameters
    ----------
    time
        Instants: ISO 8601 (without a zone: UTC) or integers, microseconds since 1970.
    sensor
        Name of the sensor.
    fields
        Columns to replay, with their unit (empty for none); all others if it is empty.
    """

    time: str = "time"
    sensor: str = "sensor"
    fields: Mapping[str, str] = field(default_factory=dict)


class Trace:
    """A recorded phenomenon.

    A mote senses at an instant what was read then or less than one interval before: a reading holds until the next
    one. Where a reading is missing it senses NULL.

    Parameters
    ----------
    path
        CSV or Parquet file.
    columns
        What its columns mean.
    stream
        Name of the stream its motes feed.

    Raises
    ------
    TraceError
        If the file cannot be read, a column is missing, or an instant cannot be understood; says which and where.
    """

    def __init__(self, path: Path, *, columns: TraceColumns | None = None, stream: str = "traffic") -> None:
        self._path = path
        self._columns = columns or TraceColumns()
        rows = _typed(_read(path), self._columns, path)
        self._fields = [name for name in rows.columns if name not in ("fjord_time", self._columns.sensor)]
        self._schema = self._make_schema(rows, stream)
        self._sensors: list[str] = []
        self._instants: list[npt.NDArray[np.int64]] = []
        self._values: list[dict[str, list[SampleValue]]] = []
        for (sensor,), part in rows.partition_by(self._columns.sensor, as_dict=True, maintain_order=True).items():
            ordered = part.sort("fjord_time", maintain_order=True).unique(
                "fjord_time", keep="last", maintain_order=True
            )
            self._sensors.append(str(sensor))
            self._instants.append(ordered["fjord_time"].to_numpy())
            self._values.append({name: ordered[name].to_list() for name in self._fields})
        if not self._sensors:
            raise TraceError(f"the trace {path} has no rows")
        if len(self._sensors) > MAX_SENSORS:
            raise TraceError(f"the trace {path} has {len(self._sensors):,} sensors, the limit is {MAX_SENSORS:,}")

    @cached_property
    def interval_us(self) -> int:
        """The commonest time between two readings of a sensor; one second if no sensor has two."""
        gaps = np.concatenate([np.diff(instants) for instants in self._instants])
        if gaps.size == 0:
            return 1_000_000
        found, counts = np.unique(gaps, return_counts=True)
        return int(found[np.argmax(counts)])

    @property
    def begins_us(self) -> int | None:
        """Instant of the first reading."""
        return int(min(instants[0] for instants in self._instants))

    @property
    def ends_us(self) -> int | None:
        """Instant at which the last reading ceases to hold."""
        return int(max(instants[-1] for instants in self._instants)) + self.interval_us

    @property
    def readings(self) -> int:
        """How many readings it holds."""
        return sum(len(instants) for instants in self._instants)

    @cached_property
    def motes(self) -> tuple[MoteDescription, ...]:
        """One mote per sensor, in the order in which they first occur."""
        return tuple(
            MoteDescription(
                name=name,
                kind="trace",
                stream=self._schema,
                properties={self._columns.sensor: sensor},
                default_period_us=self.interval_us,
                minimum_period_us=1_000,
            )
            for name, sensor in zip(mote_names(self._sensors), self._sensors, strict=True)
        )

    def sense(self, mote: int, instant_us: int, fields: tuple[str, ...]) -> tuple[SampleValue, ...]:
        """Return the reading that holds at an instant."""
        instants = self._instants[mote]
        place = int(np.searchsorted(instants, instant_us, side="right")) - 1
        if place < 0 or instant_us - int(instants[place]) >= self.interval_us:
            return (None,) * len(fields)
        values = self._values[mote]
        return tuple(values[name][place] for name in fields)

    def _make_schema(self, rows: pl.DataFrame, stream: str) -> StreamSchema:
        units = self._columns.fields
        try:
            return StreamSchema(
                stream,
                (
                    Field(self._columns.sensor, FieldType.TEXT, fixed=True),
                    *(Field(name, _field_type(rows.schema[name]), units.get(name, "")) for name in self._fields),
                ),
            )
        except SchemaError as error:
            raise TraceError(f"the trace {self._path} cannot be a stream: {error}") from error


def mote_names(sensors: list[str]) -> list[str]:
    """Return a name fit for a topic for each sensor; different ones for different sensors.

    Examples
    --------
    >>> mote_names(["716328", "I-80 west", "I-80_west"])
    ['716328', 'I-80_west', 'I-80_west-2']
    """
    names: list[str] = []
    taken: set[str] = set()
    for sensor in sensors:
        plain = re.sub(r"[^A-Za-z0-9_.\-]", "_", sensor)[:56].strip("_.-") or "mote"
        name, number = plain, 1
        while name in taken:
            number += 1
            name = f"{plain}-{number}"
        taken.add(name)
        names.append(name)
    return names


def _read(path: Path) -> pl.DataFrame:
    if not path.is_file():
        raise TraceError(f"there is no trace {path}")
    try:
        if path.suffix.lower() in {".parquet", ".pq"}:
            return pl.read_parquet(path)
        return pl.read_csv(path, infer_schema_length=10_000)
    except (PolarsError, OSError) as error:
        raise TraceError(f"the trace {path} cannot be read: {error}", hint="give a CSV or Parquet file") from error


def _typed(rows: pl.DataFrame, columns: TraceColumns, path: Path) -> pl.DataFrame:
    """Return the wanted columns: instants in microseconds, sensors as text, fields as stream types."""
    wanted = list(columns.fields) or [name for name in rows.columns if name not in (columns.time, columns.sensor)]
    for name in (columns.time, columns.sensor, *wanted):
        if name not in rows.columns:
            raise TraceError(
                f"the trace {path} has no column {name!r}; its columns are {', '.join(rows.columns)}",
                hint="name them with --time-column, --sensor-column and --field",
            )
    if not wanted:
        raise TraceError(f"the trace {path} has no column to sample besides {columns.time} and {columns.sensor}")
    instants = _instants(rows[columns.time], path)
    if rows[columns.sensor].null_count():
        row = int(rows[columns.sensor].is_null().arg_true()[0])
        raise TraceError(f"row {row + 2} of the trace {path} has no {columns.sensor}")
    typed = [_as_field(rows[name], path) for name in wanted]
    return pl.DataFrame([instants, rows[columns.sensor].cast(pl.String), *typed])


def _instants(column: pl.Series, path: Path) -> pl.Series:
    if column.dtype.is_integer():
        found = column.cast(pl.Int64)
    elif isinstance(column.dtype, pl.Datetime | pl.Date):
        found = column.cast(pl.Datetime("us")).dt.epoch("us")
    else:
        text = column.cast(pl.String)
        local = text.str.to_datetime(time_unit="us", strict=False, exact=True)
        found = local.dt.replace_time_zone(None).dt.epoch("us")
    unclear = found.is_null()
    if unclear.any():
        row = int(unclear.arg_true()[0])
        raise TraceError(
            f"row {row + 2} of the trace {path} has the time {column[row]!r}, which is no instant",
            hint="write ISO 8601 (2012-03-01T00:05:00) or microseconds since 1970",
        )
    return found.alias("fjord_time")


def _as_field(column: pl.Series, path: Path) -> pl.Series:
    kind = column.dtype
    if kind.is_integer():
        return column.cast(pl.Int64)
    if kind.is_float() or isinstance(kind, pl.Decimal):
        return column.cast(pl.Float64)
    if isinstance(kind, pl.String | pl.Boolean):
        return column
    if isinstance(kind, pl.Null):
        return column.cast(pl.Float64)
    raise TraceError(f"column {column.name!r} of the trace {path} holds {kind}, which no field can hold")


def _field_type(kind: pl.DataType) -> FieldType:
    if kind.is_integer():
        return FieldType.INTEGER
    if kind.is_float():
        return FieldType.REAL
    return FieldType.BOOLEAN if isinstance(kind, pl.Boolean) else FieldType.TEXT
