"""EXPLAIN ENERGY: what a query would cost its motes, alone and beside the queries that run; and what was spent.

Pure functions of demands, catalog entries and style. A proxy merges demands with the same functions
(protocols/acquisition), so these are the programs that it would choose, as far as the cluster has the same data.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from cluster.service.billing.energy_report import (
    MOST_EXAMPLES,
    Draw,
    EnergyAnswer,
    EnergyLine,
    Figure,
    RefusedPart,
    assumptions_of,
    figure,
    joules_a_day,
    merged_lines,
    totals_of,
)
from protocols.acquisition.merging import MergedProgram, Merger
from protocols.acquisition.needs import FoldedDemands, fold_demands
from protocols.acquisition.program_reports import ProgramStyle, SensorTraits, has_energy_model, is_known, traits_of
from protocols.acquisition.words import words_of
from protocols.power.costs import (
    always_mw,
    energy,
    listen_cost,
    packet_cost,
    resting_mw,
    sample_cost,
    synchronisation_cost,
)
from protocols.power.estimate import draw_mw, pause_us
from protocols.power.profiles import DeviceProfile
from protocols.wire.catalog import MoteEntry
from protocols.wire.demands import QueryDemand
from protocols.wire.packets import Health
from protocols.wire.programs import SLEEP, SamplingProgram
from protocols.wire.streams import StreamSchema

Demands = Mapping[str, Sequence[QueryDemand]]
"""By stream."""
MoteKey = tuple[str, str]
"""Proxy and mote."""

THIS_QUERY = "(this query)"
"""Name of a query that does not run; no other can have it."""


@dataclass(frozen=True, slots=True)
class Kind:
    """The properties that determine a mote's program, shared by some motes of one stream.

    Parameters
    ----------
    stream
        The stream that they feed.
    traits
        Of each.
    assumed
        Whether their device is a guess.
    style
        Of their proxies.
    """

    stream: str
    traits: SensorTraits
    assumed: bool
    style: ProgramStyle


def kind_of(entry: MoteEntry, styles: Mapping[str, ProgramStyle]) -> Kind:
    """Return a mote's kind; `styles` are those of its and other proxies."""
    traits = traits_of(entry)
    return Kind(entry.stream, traits, not is_known(entry.device), styles.get(entry.proxy, ProgramStyle()))


def styles_of(entries: Iterable[MoteEntry]) -> dict[str, ProgramStyle]:
    """Return the program style of proxies, as far as it can be inferred from the present programs of their motes.

    Latency bounds or a radio's limits may make some packets smaller than the style allows: the largest ones show it.
    """
    found: dict[str, ProgramStyle] = {}
    for entry in entries:
        if entry.wanted is not None and not entry.wanted.sleeping:
            before = found.get(entry.proxy)
            most = max(entry.wanted.samples_per_packet, before.samples_per_packet if before else 1)
            found[entry.proxy] = ProgramStyle(most, entry.wanted.listen)
    return found


def explain_energy(
    demanded: Demands,
    running: Demands,
    schemas: Mapping[str, StreamSchema],
    entries: Sequence[MoteEntry],
    measured: Mapping[MoteKey, float] | None = None,
) -> EnergyAnswer:
    """Return what a query would cost.

    Parameters
    ----------
    demanded, running
        Its demands, and those of all queries that run.
    schemas
        Of streams, by name.
    entries
        All motes.
    measured
        What motes have drawn so far, in milliwatts, where it is known.
    """
    measured = measured or {}
    styles = styles_of(entries)
    lines: list[EnergyLine] = []
    refused: list[RefusedPart] = []
    without_style: set[str] = set()
    untouched = without_model = 0
    for stream in sorted(demanded):
        if stream not in schemas:
            refused.append(RefusedPart(stream, f"no proxy has offered stream {stream!r}"))
            continue
        choice = _ProgramChoices(demanded[stream], running.get(stream, ()), schemas[stream])
        refused += [RefusedPart(stream, each.reason) for each in choice.alone.refused]
        groups: dict[tuple[Kind, tuple[int, ...], tuple[int, ...]], list[MoteEntry]] = {}
        for entry in entries:
            if entry.stream != stream:
                continue
            touching = choice.alone.concerning(entry.properties)
            if not touching:
                untouched += 1
                continue
            if not has_energy_model(entry):
                without_model += 1
                continue
            if entry.proxy not in styles:
                without_style.add(entry.proxy)
            others = choice.before.concerning(entry.properties)
            groups.setdefault((kind_of(entry, styles), touching, others), []).append(entry)
        lines += merged_lines(choice.line(kind, members, measured) for (kind, _, _), members in groups.items())
    return EnergyAnswer(
        tuple(sorted(demanded)),
        tuple(lines),
        totals_of(lines),
        untouched,
        tuple(refused),
        assumptions_of(lines, without_style),
        without_model,
    )


class _ProgramChoices:
    """The programs that motes of a stream would run without the query, with it, and for it alone."""

    def __init__(self, demanded: Sequence[QueryDemand], running: Sequence[QueryDemand], schema: StreamSchema) -> None:
        self.alone = fold_demands(demanded, schema)
        self.before = fold_demands(running, schema)
        self.after = fold_demands((*running, *demanded), schema)
        self._mergers: dict[tuple[int, ProgramStyle], Merger] = {}

    def line(self, kind: Kind, members: Sequence[MoteEntry], measured: Mapping[MoteKey, float]) -> EnergyLine:
        """Return the cost of the query to motes of one kind to which the same demands apply."""
        properties, traits = members[0].properties, kind.traits
        alone, before, after = (
            draw(self._merger(demands, kind.style).merge(traits, properties), traits)
            for demands in (self.alone, self.before, self.after)
        )
        adds: Figure | None = None
        if after.milliwatts is not None and before.milliwatts is not None:
            adds = figure(joules_a_day(after.milliwatts - before.milliwatts), traits.profile.uncertainty)
        known = [measured[key] for each in members if (key := (each.proxy, each.mote)) in measured]
        return EnergyLine(
            stream=kind.stream,
            motes=len(members),
            examples=tuple(sorted(each.mote for each in members)[:MOST_EXAMPLES]),
            device=traits.device,
            device_assumed=kind.assumed,
            battery_joules=traits.battery_joules,
            alone=alone,
            before=before,
            after=after,
            adds_joules_per_day=adds,
            measured_motes=len(known),
            measured_milliwatts=math.fsum(known) / len(known) if known else None,
        )

    def _merger(self, demands: FoldedDemands, style: ProgramStyle) -> Merger:
        key = id(demands), style
        if key not in self._mergers:
            self._mergers[key] = Merger(demands, style)
        return self._mergers[key]


def draw(merged: MergedProgram, traits: SensorTraits) -> Draw:
    """Return the draw of a program, and how long a battery lasts with it."""
    milliwatts = milliwatts_of(merged, traits.profile)
    does = words_of(merged.program)
    if not math.isfinite(milliwatts):
        return Draw(does, f"more than {traits.device} can do: {merged.reason}", None, None, None)
    uncertainty, days = traits.profile.uncertainty, traits.days(milliwatts)
    return Draw(
        does,
        merged.reason,
        milliwatts,
        figure(joules_a_day(milliwatts), uncertainty),
        figure(days, uncertainty) if math.isfinite(days) else None,
        merged.stretched,
        merged.lifetime_kept,
    )


def milliwatts_of(merged: MergedProgram, profile: DeviceProfile) -> float:
    """Return the mean draw of a merged program; infinite if the device cannot run it."""
    return asleep_mw(profile) if merged.program.sleeping else merged.milliwatts


@lru_cache(maxsize=256)
def asleep_mw(profile: DeviceProfile) -> float:
    """Return the draw of a mote that no query demands: it sleeps, and listens for programs every few seconds."""
    return float(draw_mw(profile, SLEEP).sum())


def spent_joules(
    profile: DeviceProfile,
    program: SamplingProgram,
    before: Health,
    now: Health,
    elapsed_us: int,
) -> float:
    """Return what a mote has spent between two of its reports of health.

    Samples and packets are counted, sending and listening are measured; it rests for the remaining time. Not included,
    since a mote does not count them: repeats of unacknowledged packets, and what announcements cost besides their time
    on the air.

    Parameters
    ----------
    profile
        Of its device.
    program
        Its program in that time.
    before, now
        Its reports. Counters that have decreased began at zero again: it has rebooted.
    elapsed_us
        Time between them.
    """
    if now.samples < before.samples or now.packets < before.packets or now.transmit_us < before.transmit_us:
        before = Health(None, 0, 0, 0, 0)
    samples, packets = now.samples - before.samples, now.packets - before.packets
    transmit_us, listen_us = now.transmit_us - before.transmit_us, max(0, now.listen_us - before.listen_us)
    sample = sample_cost(profile, max(1, len(program.fields)), max(1, program.period_us))
    # What a packet costs besides its time on the air.
    empty, empty_us = packet_cost(profile, 0.0), profile.radio.airtime_us(0.0)
    sending_mw = profile.radio.transmit_mw + profile.processor.idle_mw
    listening = listen_cost(profile, listen_us)
    every_us = profile.clock.synchronise_every_seconds * 1e6
    synchronisations = elapsed_us / every_us if every_us else 0.0
    synchronising = synchronisation_cost(profile)
    joules = (
        samples * float(sample.joules.sum())
        + packets * (float(empty.joules.sum()) - energy(sending_mw, empty_us))
        + energy(sending_mw, transmit_us)
        + float(listening.joules.sum())
        + synchronisations * float(synchronising.joules.sum())
    )
    busy_us = (
        samples * sample.busy_us
        + packets * (empty.busy_us - empty_us)
        + transmit_us
        + listening.busy_us
        + synchronisations * synchronising.busy_us
    )
    resting_us = max(0.0, elapsed_us - busy_us)
    rest_mw = float(resting_mw(profile, pause_us(program)).sum())
    return joules + energy(rest_mw, resting_us) + energy(float(always_mw(profile).sum()), elapsed_us)
