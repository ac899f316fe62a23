"""Which sampling program each mote should run: the cheapest that answers all demands on its stream. Pure."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from protocols.acquisition.merging import draw_of
from protocols.acquisition.program_reports import Abilities, traits_of
from protocols.wire.packets import Announcement
from protocols.wire.programs import SLEEP, SamplingProgram, publishing_program
from proxy.fleet.fleet_instructions import FleetInstruction, ForMote, RejectDemand, RememberProgram
from proxy.fleet.merging_task import SensorKind
from proxy.fleet.stream_state import StreamState
from proxy.motes.mote_entries import PUBLISHES
from proxy.motes.mote_events import DemandChanged
from proxy.motes.mote_tracking import MoteTracking

_WORTH_CHANGING = 0.9
"""A program that costs no less than this share of the running one is not worth the change."""


class ProgramChoice:
    """Chooses the programs of a fleet.

    Parameters
    ----------
    abilities_of
        Returns what a mote can do.
    """

    def __init__(self, abilities_of: Callable[[str], Abilities]) -> None:
        self._abilities_of = abilities_of
        self._remembered: set[tuple[str, SamplingProgram]] = set()

    def kind_of(self, mote: MoteTracking) -> SensorKind | None:
        """Return what determines the program of a mote; None before it has announced itself, or if nothing does."""
        announcement = mote.announcement
        if announcement is None or mote.publishes:
            return None
        return traits_of(announcement, self._abilities_of(announcement.mote)), announcement.properties

    def apply(
        self,
        stream: StreamState,
        mote: MoteTracking,
        radio_us: int,
        *,
        only_if_cheaper: bool = False,
        at_once: bool = False,
    ) -> list[FleetInstruction]:
        """Choose the program of a mote.

        Parameters
        ----------
        stream
            That the mote feeds.
        mote
            Which mote.
        radio_us
            Radio clock now.
        only_if_cheaper
            Whether the mote keeps its program unless another one costs clearly less.
        at_once
            Whether a program that has not been chosen yet is wanted at once, not the cheapest.
        """
        if mote.publishes and mote.announcement is not None:
            return self._published(stream, mote, mote.announcement, radio_us)
        kind = self.kind_of(mote)
        if kind is None:
            return []
        traits, properties = kind
        known = len(stream.merger.left_out)
        merged = stream.merger.merge(traits, properties, at_once=at_once)
        instructions: list[FleetInstruction] = [
            RejectDemand(stream.name, each) for each in list(stream.merger.left_out.values())[known:]
        ]
        if only_if_cheaper and merged.program != mote.desired:
            now_mw = draw_of(mote.desired, traits, stream.observed)
            if merged.milliwatts > now_mw * _WORTH_CHANGING:
                return instructions
        if (stream.name, merged.program) not in self._remembered:
            self._remembered.add((stream.name, merged.program))
            instructions.append(RememberProgram(merged.program, stream.name, merged.reason))
        answered = merged if merged.needs else None
        stored_us = () if mote.device is None else stream.stamps.of(mote.mote)
        event = DemandChanged(merged.program, radio_us, answered, traits, stream.watermark_us, stored_us)
        return instructions + [ForMote(mote.mote, each) for each in mote.handle(event)]

    def _published(
        self, stream: StreamState, mote: MoteTracking, announcement: Announcement, radio_us: int
    ) -> list[FleetInstruction]:
        """Let what publishes by its own rules be read by the queries on its stream, if there are any.

        A mote that replays a recording begins with its program, whose period means nothing to it.
        """
        merged = stream.needs_of_publisher(announcement.properties)
        program = publishing_program(announcement.stream)
        instructions: list[FleetInstruction] = []
        if mote.takes_programs:
            merged = None if merged is None or not merged.needs else merged
            style = stream.merger.style
            program = replace(program, samples_per_packet=style.samples_per_packet, listen=style.listen)
            program = SLEEP if merged is None else program
            if (stream.name, program) not in self._remembered:
                self._remembered.add((stream.name, program))
                instructions.append(RememberProgram(program, stream.name, PUBLISHES))
        event = DemandChanged(
            program, radio_us, merged, watermark_us=stream.watermark_us, stored_us=stream.stamps.of(mote.mote)
        )
        return instructions + [ForMote(mote.mote, each) for each in mote.handle(event)]
