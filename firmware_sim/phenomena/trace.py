"""Replay of recorded readings: every sensor of a CSV or Parquet file becomes a mote that senses the recording."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl
from polars.exceptions import PolarsError

from firmware_sim.errors import TraceError
from firmware_sim.mote.mote_events import MoteDescription
from protocols.errors import SchemaError
from protocols.wire.frames import LONGEST_PERIOD_US
from protocols.wire.names import NAME_SHAPE, is_identifier
from protocols.wire.packets import SampleValue
from protocols.wire.streams import Field, FieldType, StreamSchema

MAX_SENSORS = 100_000
LATEST_US = 2**61
"""All instants of a trace are within this distance of 1970."""
LONGEST_TEXT = 1_024
"""Most characters of a text in a packet."""
SHOWN = 80
"""Most characters of a value that are shown."""


@dataclass(frozen=True, slots=True)
class TraceColumns:
    """The meaning of the columns of a trace.

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


@dataclass(frozen=True, slots=True)
class Readings:
    """What was recorded of one sensor, with its stamps (:class:`firmware_sim.mote.mote.Recording`).

    Parameters
    ----------
    instants
        Of the readings, ascending; several may have one.
    values
        Of the readings, by field.
    """

    instants: npt.NDArray[np.int64]
    values: Mapping[str, Sequence[SampleValue]]

    def next_us(self, from_us: int) -> int | None:
        """Return the instant of the first reading from one on; None if there is none."""
        place = int(np.searchsorted(self.instants, from_us))
        return int(self.instants[place]) if place < len(self.instants) else None

    def readings(self, instant_us: int, fields: tuple[str, ...]) -> list[tuple[SampleValue, ...]]:
        """Return the values of the readings of an instant."""
        first, end = (int(np.searchsorted(self.instants, instant_us, side)) for side in ("left", "right"))
        return [tuple(self.values[name][place] for name in fields) for place in range(first, end)]


@dataclass(frozen=True, slots=True)
class Resampling:
    """How a trace is sampled again.

    Parameters
    ----------
    period_us
        The sample period of queries without one; None for the commonest time between two readings.
    """

    period_us: int | None = None


class Trace:
    """A recorded phenomenon: replayed as it is, or sampled again.

    If it is sampled again, a mote senses at an instant the reading of that instant or of less than one interval before:
    a reading holds until the next one. Where a reading is missing it senses NULL.

    Parameters
    ----------
    path
        CSV or Parquet file.
    columns
        The meaning of its columns.
    stream
        Name of the stream its motes feed.
    resampling
        None to replay it as it is.

    Raises
    ------
    TraceError
        If the file cannot be read, a column is missing, or an instant cannot be understood; the error has the place.
    """

    def __init__(
        self,
        path: Path,
        *,
        columns: TraceColumns | None = None,
        stream: str = "traffic",
        resampling: Resampling | None = None,
    ) -> None:
        self._path = path
        self._resampling = resampling
        self._columns = columns or TraceColumns()
        rows = _typed(_read(path), self._columns, path)
        self._fields = [name for name in rows.columns if name not in ("fjord_time", self._columns.sensor)]
        self._schema = self._make_schema(rows, stream)
        self._sensors: list[str] = []
        self._instants: list[npt.NDArray[np.int64]] = []
        self._values: list[dict[str, list[SampleValue]]] = []
        for (sensor,), part in rows.partition_by(self._columns.sensor, as_dict=True, maintain_order=True).items():
            ordered = part.sort("fjord_time", maintain_order=True)
            if resampling is not None:
                ordered = ordered.unique("fjord_time", keep="last", maintain_order=True)
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
        if self._gaps.size == 0:
            return 1_000_000
        found, counts = np.unique(self._gaps, return_counts=True)
        return int(found[np.argmax(counts)])

    @cached_property
    def _gaps(self) -> npt.NDArray[np.int64]:
        gaps = np.concatenate([np.diff(instants) for instants in self._instants])
        return gaps[gaps > 0]

    @cached_property
    def _period_us(self) -> int:
        """The period for queries without SAMPLE; of what is replayed as it is, the median of its gaps."""
        if self._resampling is None:
            return int(np.median(self._gaps)) if self._gaps.size else self.interval_us
        return self._resampling.period_us or self.interval_us

    @property
    def _holds_us(self) -> int:
        """How long a reading holds, unless another one comes."""
        return 1 if self._resampling is None else max(self._period_us, self.interval_us)

    @property
    def begins_us(self) -> int | None:
        """Instant of the first reading."""
        return int(min(instants[0] for instants in self._instants))

    @property
    def ends_us(self) -> int | None:
        """Instant at which the last reading ceases to hold."""
        return int(max(instants[-1] for instants in self._instants)) + self._holds_us

    @property
    def readings(self) -> int:
        """The number of its readings."""
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
                default_period_us=min(self._period_us, LONGEST_PERIOD_US),
                minimum_period_us=1_000,
            )
            for name, sensor in zip(mote_names(self._sensors), self._sensors, strict=True)
        )

    def recording(self, mote: int) -> Readings | None:
        """Return what was recorded of a mote's sensor; None if it is sampled again."""
        if self._resampling is not None:
            return None
        return Readings(self._instants[mote], self._values[mote])

    def sense(self, mote: int, instant_us: int, fields: tuple[str, ...]) -> tuple[SampleValue, ...]:
        """Return the reading that holds at an instant."""
        instants = self._instants[mote]
        place = int(np.searchsorted(instants, instant_us, side="right")) - 1
        if place < 0 or instant_us - int(instants[place]) >= self._holds_us:
            return (None,) * len(fields)
        values = self._values[mote]
        return tuple(values[name][place] for name in fields)

    def _make_schema(self, rows: pl.DataFrame, stream: str) -> StreamSchema:
        units = self._columns.fields
        for name in (self._columns.sensor, *self._fields):
            if not is_identifier(name):
                raise TraceError(
                    f"column {name!r} of the trace {self._path} cannot be a field of a stream",
                    hint=f"names of fields are {NAME_SHAPE}: rename it, or choose columns with --field",
                )
        try:
            schema = StreamSchema(
                stream,
                (
                    Field(self._columns.sensor, FieldType.TEXT, fixed=True),
                    *(Field(name, _field_type(rows.schema[name]), units.get(name, "")) for name in self._fields),
                ),
            )
            # Proxies would reject invalid values, but no error would appear here.
            return msgspec.convert(msgspec.to_builtins(schema), StreamSchema)
        except (SchemaError, msgspec.ValidationError) as error:
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
    if "fjord_time" in (columns.sensor, *wanted):
        raise TraceError(f"the trace {path} has a column 'fjord_time', a name that Fjord needs for itself")
    instants = _instants(rows[columns.time], path)
    typed = [_as_field(rows[name], path) for name in wanted]
    return pl.DataFrame([instants, _sensors(rows[columns.sensor], path), *typed])


def _instants(column: pl.Series, path: Path) -> pl.Series:
    try:
        found = _microseconds(column)
    except PolarsError:  # no time in any form
        found = pl.Series([None] * column.len(), dtype=pl.Int64)
    # Instants beyond would leave the stamps of the protocol.
    unclear = ~found.is_between(-LATEST_US, LATEST_US).fill_null(value=False)
    if unclear.any():
        row = int(unclear.arg_true()[0])
        raise TraceError(
            f"row {row + 2} of the trace {path} has the time {_shown(column, row)}, which is no instant",
            hint="write ISO 8601 (2012-03-01T00:05:00) or microseconds since 1970",
        )
    return found.alias("fjord_time")


def _microseconds(column: pl.Series) -> pl.Series:
    if column.dtype.is_integer():
        return column.cast(pl.Int64, strict=False)
    if isinstance(column.dtype, pl.Datetime | pl.Date):
        return column.cast(pl.Datetime("us"), strict=False).dt.epoch("us")
    local = column.cast(pl.String).str.to_datetime(time_unit="us", strict=False, exact=True)
    return local.dt.replace_time_zone(None).dt.epoch("us")


def _sensors(column: pl.Series, path: Path) -> pl.Series:
    names = _converted(column, pl.String(), path)
    unfit = names.is_null() | (names.str.len_chars() > LONGEST_TEXT)
    if unfit.any():
        row = int(unfit.arg_true()[0])
        reason = "no" if names[row] is None else f"more than {LONGEST_TEXT:,} characters of"
        raise TraceError(f"row {row + 2} of the trace {path} has {reason} {column.name}")
    return names


def _as_field(column: pl.Series, path: Path) -> pl.Series:
    kind = column.dtype
    if kind.is_integer():
        return _converted(column, pl.Int64(), path)
    if kind.is_float() or isinstance(kind, pl.Decimal | pl.Null):
        reals = _converted(column, pl.Float64(), path)
        return reals.set(~reals.is_finite(), None)  # as everywhere, infinite values and NaN are NULL
    if isinstance(kind, pl.String) and (long := column.str.len_chars() > LONGEST_TEXT).any():
        row = int(long.arg_true()[0])
        raise TraceError(
            f"row {row + 2} of the trace {path} has more than {LONGEST_TEXT:,} characters of {column.name}"
        )
    if isinstance(kind, pl.String | pl.Boolean):
        return column
    raise TraceError(f"column {column.name!r} of the trace {path} holds {kind}, which no field can hold")


def _converted(column: pl.Series, kind: pl.DataType, path: Path) -> pl.Series:
    """Return a column converted to another type without loss."""
    try:
        found = column.cast(kind, strict=False)
    except PolarsError as error:
        raise TraceError(
            f"column {column.name!r} of the trace {path} holds {column.dtype}, which cannot be {kind}"
        ) from error
    lost = found.is_null() & column.is_not_null()
    if lost.any():
        row = int(lost.arg_true()[0])
        reason = "is too large" if column.dtype.is_numeric() else f"cannot be {kind}"
        raise TraceError(
            f"row {row + 2} of the trace {path} has the {column.name} {_shown(column, row)}, which {reason}"
        )
    return found


def _shown(column: pl.Series, row: int) -> str:
    """Return a value in words; an instant that is out of range could not be formatted."""
    value = column.to_physical()[row] if column.dtype.is_temporal() else column[row]
    return repr(value)[:SHOWN]


def _field_type(kind: pl.DataType) -> FieldType:
    if kind.is_integer():
        return FieldType.INTEGER
    if kind.is_float():
        return FieldType.REAL
    return FieldType.BOOLEAN if isinstance(kind, pl.Boolean) else FieldType.TEXT
