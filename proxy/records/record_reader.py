"""Records of one mote become tuples, under the push-down fingerprints of the queries that need them. Pure.

**Fills in the samples that a mote did not send because they had not changed.**

A mote that sends only changes gives its low watermark with every packet: all samples before it that were not sent were
within the dead band of the last one sent. Where a packet is missing the last one sent is not known: the samples from
the low watermark before the loss up to the next one sent are not known either.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from protocols.errors import SchemaError
from protocols.wire.batches import measure_column
from protocols.wire.frames import Value
from protocols.wire.packets import Announcement, Health, Packet, Partial, Sample, VehicleEvent, VehicleTally
from protocols.wire.programs import (
    Panes,
    SamplingProgram,
    SendOnChange,
    first_sample_at_or_after,
    publishing_program,
    reports_of,
)
from protocols.wire.streams import FieldType, check_value
from proxy.records.decoding import RowDecoder
from proxy.records.program_routes import EventDetection, FindRoutes, Needs, OpenPanes, Routes, routes_of
from proxy.records.waiting_tuples import Aggregated, FieldChanges, MotePosition, PacketTuples, Publishing, WaitingTuple

MOST_UNKNOWN = 1_000
"""The most samples after a loss of which it is reported that they are not known; the first ones matter most."""


class ChangeFilling:
    """The last sample of one mote under one program.

    Parameters
    ----------
    alone
        The report that sends changes, as a program of its own.
    """

    def __init__(self, alone: SamplingProgram) -> None:
        assert isinstance(alone.report, SendOnChange)  # noqa: S101 - the caller has checked
        self._period_us = alone.period_us
        self._most = alone.report.maximum_silence_us // alone.period_us
        self._last: tuple[int, tuple[Value, ...]] | None = None
        self._unknown_us: int | None = None
        """The next sample that is not known, since something was lost; None if nothing was."""
        self._unknown_left = 0

    def lost(self, known_until_us: int | None) -> None:
        """Note that a packet is missing: the last sample sent is not known any more.

        Parameters
        ----------
        known_until_us
            All samples before it were sent or have been filled in; None if that is not known.
        """
        if known_until_us is not None and self._unknown_us is None:
            self._unknown_us = first_sample_at_or_after(known_until_us, self._period_us)
        self._last, self._unknown_left = None, min(self._most, MOST_UNKNOWN)

    def before(self, instant_us: int) -> Iterator[tuple[int, tuple[Value, ...] | None]]:
        """Yield the unsent samples before an instant, with their values; None for values that are not known."""
        if self._last is None:
            yield from self._unknown_before(instant_us)
            return
        last_us, values = self._last
        if instant_us - last_us > self._most * self._period_us + self._period_us:
            return  # longer than the longest silence: the mote does not sample any more
        for _ in range(self._most):
            last_us += self._period_us
            if last_us >= instant_us:
                return
            self._last = (last_us, values)
            yield last_us, values

    def sent(self, instant_us: int, values: tuple[Value, ...]) -> None:
        """Note a sample that was sent."""
        self._last, self._unknown_us = (instant_us, values), None

    def passed(self, watermark_us: int) -> None:
        """Note that the stream has passed an instant: nothing stamped before it is wanted any more."""
        if self._unknown_us is not None and self._unknown_us < watermark_us:
            self._unknown_us = first_sample_at_or_after(watermark_us, self._period_us)

    def _unknown_before(self, instant_us: int) -> Iterator[tuple[int, None]]:
        while self._unknown_us is not None and self._unknown_us < instant_us and self._unknown_left > 0:
            unknown_us = self._unknown_us
            self._unknown_us += self._period_us
            self._unknown_left -= 1
            yield unknown_us, None


MOST_SAMPLES_FILLED = 100_000
"""From one packet."""
_NOTHING_BUT_SAMPLES = [Sample] * 4_096
"""Types of the records of the longest packet."""


class RecordReader:
    """Reads the records of one program of one mote.

    Parameters
    ----------
    announcement
        Of the mote.
    program
        Under which the records were made.
    needs
        What queries need of the mote now.
    routes
        Finds the routes of a program.
    publishing
        How a driven device publishes; None for a mote of Fjord. What it sends under a program that sends every sample
        is published: each is a tuple of its own, wherever between two samples it is stamped.
    changes
        Of the fields of which each change counts.

    Raises
    ------
    SchemaError
        If the program samples a field the mote does not have.
    """

    def __init__(
        self,
        announcement: Announcement,
        program: SamplingProgram,
        needs: Needs,
        routes: FindRoutes = routes_of,
        *,
        publishing: Publishing | None = None,
        changes: FieldChanges | None = None,
    ) -> None:
        self._announcement = announcement
        self._program = program
        self._reports = reports_of(program)
        self._several = len(self._reports) > 1
        self._rows: dict[int, RowDecoder] = {}
        own_stamps = publishing is not None and program.report is None
        # A device's report has all fields, whatever queries read of it.
        self._whole = RowDecoder(announcement, publishing_program(announcement.stream) if own_stamps else program)
        self._blank = self._whole.blank
        self._fillings = {
            number: ChangeFilling(alone)
            for number, alone in enumerate(self._reports)
            if isinstance(alone.report, SendOnChange)
        }
        self._find_routes = routes
        self.routes = Routes(())
        self._panes = OpenPanes(self._reports)
        self._detections: list[EventDetection] = []
        self._published = publishing is not None and program.report is None
        """Whether its tuples are: all are passed on, as it is found later which of them a query reads."""
        self._changes = changes
        freely = publishing is not None and publishing.freely
        self._default_period_us = 0 if freely and self._published else announcement.default_period_us
        self._plain = self._quick = False
        self.route(needs)

    def route(self, needs: Needs) -> None:
        """Set what queries need from now on."""
        before = {each.detection: each for each in self._detections}
        former, self.routes = self.routes, self._find_routes(self._program, needs)
        demanded = frozenset(each.fingerprint for _, classes in needs for each in classes if each.fingerprint)
        self._panes.change(former, self.routes, demanded)
        self._detections = [
            before.get(each) or EventDetection(each, published=self._published) for each in self.routes.detections
        ]
        # A packet of these is read twice if anything is unusual about it: that must not change any state.
        self._quick = self._published and not self._detections and self._changes is None
        self._plain = (
            not self._several
            and not self._published
            and self._program.report is None
            and not self._detections
            and self.routes.forwards_samples
            and not self.routes.periods_us
        )

    @property
    def fills(self) -> bool:
        """Whether samples that were not sent are filled in."""
        return bool(self._fillings)

    @property
    def open_us(self) -> int | None:
        """No later tuple is stamped before this, whatever the mote's low watermark; None if no event has begun."""
        begun = [each.open_us for each in self._detections]
        return min((each for each in begun if each is not None), default=None)

    def lost(self, known_until_us: int | None = None) -> None:
        """Note that a packet is missing, or could not be read.

        Parameters
        ----------
        known_until_us
            The mote's low watermark before that; None if it is not known.
        """
        for filling in self._fillings.values():
            filling.lost(known_until_us)
        for detection in self._detections:
            detection.lost()

    def passed(self, watermark_us: int) -> None:
        """Note that the stream has passed an instant."""
        for filling in self._fillings.values():
            filling.passed(watermark_us)

    def unknown_from(self, known_until_us: int, position: MotePosition) -> PacketTuples | None:
        """Return a sample of NULLs where a mote that sends nothing any more may have left out some; None if it may not.

        Parameters
        ----------
        known_until_us
            Its low watermark.
        position
            Of its last packet.
        """
        self.lost(known_until_us)
        tuples: list[WaitingTuple] = []
        for number, filling in self._fillings.items():
            longest_us = max(self._reports[number].period_us, *self.routes.periods_us, 0)
            self._fill(number, filling, known_until_us + longest_us, position, tuples)
        return PacketTuples.of(tuples, self._default_period_us) if tuples else None

    def read(self, packet: Packet) -> PacketTuples | None:
        """Return the tuples of a packet, in no particular order; None if there are none.

        Raises
        ------
        SchemaError
            If a record does not fit the program.
        """
        if self._plain or self._published:
            return self._read_plain(packet)
        self._panes.note(packet.clock_us)
        position = MotePosition(packet.mote, packet.boot, packet.sequence, packet.clock_us)
        tuples: list[WaitingTuple] = []
        for record in packet.records:
            match record:
                case Sample():
                    self._sample(packet.clock_us - record.age_us, record, position, tuples)
                case Partial():
                    self._partial(packet.clock_us - record.age_us, record, position, tuples)
                case VehicleEvent():
                    names = (
                        self._fingerprints(record.report, counts=False),
                        self._fingerprints(record.report, counts=True),
                    )
                    stamp_us = packet.clock_us - record.age_us
                    event = Aggregated(pane_us=record.passing_us, samples=1)
                    self._add_aggregate(names[0], stamp_us, event, position, tuples)
                    self._add_aggregate(names[1], stamp_us, event._replace(pane_us=1), position, tuples)
                case VehicleTally() if record.vehicles:
                    tally = Aggregated(pane_us=record.every_us, samples=record.vehicles)
                    counted = self._fingerprints(record.report, counts=True)
                    self._add_aggregate(counted, packet.clock_us - record.age_us, tally, position, tuples)
                case _:
                    pass
        for number, filling in self._fillings.items():
            self._fill(number, filling, packet.promise_us, position, tuples)
        return PacketTuples.of(tuples, self._default_period_us) if tuples else None

    def samples(self, packet: Packet) -> PacketTuples | None:
        """Return the tuples of a packet that has only samples, which all queries read as they are: of most packets.

        None leaves the packet to :meth:`read`.
        """
        if not (self._plain or self._quick):
            return None
        records = packet.records
        if list(map(type, records)) != _NOTHING_BUT_SAMPLES[: len(records)] or not records:
            return None
        try:
            return self._tuples(packet, records)  # type: ignore[arg-type]  # they are samples
        except SchemaError:
            return None

    def _read_plain(self, packet: Packet) -> PacketTuples | None:
        """Return the tuples of a program with one report, whose samples are passed on as they are."""
        samples = [each for each in packet.records if isinstance(each, Sample)]
        if any(not isinstance(each, Sample | Health) for each in packet.records):
            raise SchemaError("a record of a kind that its program does not contain")
        return self._tuples(packet, samples) if samples else None

    def _tuples(self, packet: Packet, samples: Sequence[Sample]) -> PacketTuples:
        clock_us, covered_by = packet.clock_us, self.routes.covered_by
        starts_us = tuple([clock_us - each.age_us for each in samples])
        rows = self._whole.rows([each.values for each in samples])
        extras: tuple[Aggregated | None, ...] = ()
        if covered_by is not None:
            extras = (Aggregated(covered_by=covered_by),) * len(samples)
        if self._published:
            return self._as_published(packet, starts_us, rows, extras)
        return PacketTuples(
            packet.mote, packet.boot, packet.sequence, clock_us, self._default_period_us, starts_us, rows, extras
        )

    def _as_published(
        self,
        packet: Packet,
        starts_us: tuple[int, ...],
        rows: tuple[tuple[Value, ...], ...],
        extras: tuple[Aggregated | None, ...],
    ) -> PacketTuples:
        """Return tuples that the device stamped itself, and behind them the events that they complete."""
        changes = () if self._changes is None else self._changes.found_in(rows)
        found: list[tuple[int, Aggregated]] = []
        for each in self._detections:
            place = self._announcement.stream.field_names.index(each.detection.threshold.field)
            for start_us, row in zip(starts_us, rows, strict=True):
                found += each.sample(start_us, row[place])
        if found:
            stamps_us, events = zip(*found, strict=True)
            extras = (*(extras or (None,) * len(rows)), *events)
            changes = (*changes, *(False,) * len(found)) if changes else ()
            starts_us, rows = (*starts_us, *stamps_us), (*rows, *(self._blank,) * len(found))
        return PacketTuples(
            packet.mote,
            packet.boot,
            packet.sequence,
            packet.clock_us,
            self._default_period_us,
            starts_us,
            rows,
            extras,
            published=True,
            events=changes,
        )

    def _sample(self, start_us: int, sample: Sample, position: MotePosition, tuples: list[WaitingTuple]) -> None:
        row = self._decoder(sample.reports).row(sample.values)
        for number, filling in self._fillings.items():
            if sample.reports >> number & 1:
                self._fill(number, filling, start_us, position, tuples)
                filling.sent(start_us, sample.values)
        self._forward(start_us, row, sample.reports, position, tuples)

    def _fill(
        self, number: int, filling: ChangeFilling, until_us: int, position: MotePosition, tuples: list[WaitingTuple]
    ) -> None:
        decoder = self._decoder(1 << number)
        for start_us, values in filling.before(until_us):
            if len(tuples) >= MOST_SAMPLES_FILLED:
                raise SchemaError(f"more than {MOST_SAMPLES_FILLED:,} samples between two packets")
            if values is not None:
                self._forward(start_us, decoder.row(values), 1 << number, position, tuples)
            elif self.routes.wants_unknown:
                self._forward(start_us, self._blank, 0, position, tuples)

    def _forward(
        self, start_us: int, row: tuple[Value, ...], reports: int, position: MotePosition, tuples: list[WaitingTuple]
    ) -> None:
        """Add a sample, if it is needed, and the events it completes."""
        routes = self.routes
        needed = routes.forwards_samples and (
            not routes.periods_us or any(start_us % period_us == 0 for period_us in routes.periods_us)
        )
        if needed:
            covered_by = self._panes.covered_by(start_us, routes)
            extra = None if covered_by is None else Aggregated(covered_by=covered_by)
            tuples.append(WaitingTuple(start_us, row, position, aggregated=extra))
        for each in self._detections:
            if reports >> each.detection.report & 1:
                place = self._announcement.stream.field_names.index(each.detection.threshold.field)
                for stamp_us, event in each.sample(start_us, row[place]):
                    tuples.append(WaitingTuple(stamp_us, self._blank, position, aggregated=event))

    def _partial(self, stamp_us: int, partial: Partial, position: MotePosition, tuples: list[WaitingTuple]) -> None:
        alone = self._report_of(partial.report)
        if not isinstance(alone.report, Panes) or len(partial.measures) != len(alone.fields):
            raise SchemaError("partial aggregates that its program does not contain")
        measures: list[tuple[str, Value]] = []
        for name, values in zip(alone.fields, partial.measures, strict=True):
            stream_field = self._announcement.stream.field(name)
            if len(values) != len(alone.report.measures):
                raise SchemaError(f"{len(values)} measures of {name!r}, its program has {alone.report.measures}")
            counted = dict(zip((each.value for each in alone.report.measures), values, strict=True)).get("count")
            for measure, value in zip(alone.report.measures, values, strict=True):
                if measure.value in ("min", "max", "sum") and stream_field.type is not FieldType.BOOLEAN:
                    known = None if measure.value == "sum" and counted == 0 else check_value(stream_field, value)
                    measures.append((measure_column(measure, name), known))
                elif measure.value == "count":
                    measures.append((measure_column(measure, name), _checked_count(name, value)))
        aggregated = Aggregated(None, None, partial.pane_us, partial.samples, tuple(measures))
        names = self._panes.names(partial.report, stamp_us, self.routes)
        self._add_aggregate(names, stamp_us, aggregated, position, tuples)

    def _add_aggregate(
        self,
        fingerprints: tuple[str, ...],
        stamp_us: int,
        aggregated: Aggregated,
        position: MotePosition,
        tuples: list[WaitingTuple],
    ) -> None:
        """Add an aggregate or event, once for each fingerprint."""
        for each in fingerprints:
            extra = aggregated._replace(fingerprint=each)
            tuples.append(WaitingTuple(stamp_us, self._blank, position, aggregated=extra))

    def _fingerprints(self, number: int, *, counts: bool) -> tuple[str, ...]:
        self._report_of(number)
        return self.routes.fingerprints[number][int(counts)]

    def _report_of(self, number: int) -> SamplingProgram:
        if number >= len(self._reports):
            raise SchemaError(f"a record of report {number} of a program with {len(self._reports)}")
        return self._reports[number]

    def _decoder(self, reports: int) -> RowDecoder:
        """Return the decoder of samples that these reports send."""
        found = self._rows.get(reports)
        if found is None:
            if reports >> len(self._reports):
                raise SchemaError(f"a sample of reports {reports:b} of a program with {len(self._reports)}")
            sent_by = [alone for number, alone in enumerate(self._reports) if reports >> number & 1]
            if any(not (alone.report is None or isinstance(alone.report, SendOnChange)) for alone in sent_by):
                raise SchemaError("a sample of a report that sends none")
            shown = {name for alone in sent_by for name in alone.fields}
            fields = tuple(name for name in self._program.fields if name in shown)
            found = self._rows[reports] = RowDecoder(
                self._announcement, SamplingProgram(fields, self._program.period_us)
            )
        return found


def _checked_count(name: str, value: Value) -> Value:
    """Return a count as a batch can hold it."""
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63):
        return value
    raise SchemaError(f"an invalid count of values of {name!r}: {value!r}")
