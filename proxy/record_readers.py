"""What reads the records of one mote, program by program: a mote may deliver records of an older one. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocols.errors import SchemaError
from protocols.wire.packets import Announcement
from protocols.wire.programs import SLEEP
from proxy.program_routes import Needs
from proxy.record_reader import RecordReader

if TYPE_CHECKING:
    from proxy.program_table import ProgramTable


class RecordReaders:
    """The readers of one mote.

    Parameters
    ----------
    programs
        Programs the proxy knows.
    """

    def __init__(self, programs: ProgramTable) -> None:
        self._programs = programs
        self._announcement: Announcement | None = None
        self._needs: Needs = ()
        self._taking: dict[int, RecordReader | None] = {}

    def announced(self, announcement: Announcement) -> None:
        """Take note of what the mote is."""
        if announcement != self._announcement:
            self._taking.clear()
        self._announcement = announcement

    def route(self, needs: Needs) -> None:
        """Take note of what queries need of the mote from now on."""
        self._needs = needs
        for taking in self._taking.values():
            if taking is not None:
                taking.route(needs)

    def learned(self) -> None:
        """The table has a new program: one that was unknown may be known now."""
        self._taking = {number: taking for number, taking in self._taking.items() if taking is not None}

    def began(self, number: int) -> None:
        """The mote has begun with a program, from nothing."""
        self._taking.pop(number, None)

    def rebooted(self) -> None:
        """The mote has rebooted."""
        self._taking.clear()

    def lost(self, number: int) -> None:
        """Packets of the mote are missing."""
        taking = self._taking.get(number)
        if taking is not None:
            taking.lost()

    def fills(self, number: int) -> bool:
        """Return whether a packet without records says something about samples, too."""
        taking = self._taking.get(number)
        return taking is not None and taking.fills

    def held_back(self, number: int | None, promise_us: int | None) -> int | None:
        """Return what a mote's promise means for tuples: events that are not over yet are stamped before it."""
        taking = self._taking.get(number or 0)
        open_us = None if taking is None else taking.open_us
        return promise_us if open_us is None or promise_us is None else min(open_us, promise_us)

    def of(self, number: int) -> RecordReader | None:
        """Return what reads the records of a program; None if it is not known, or of another stream."""
        taking = self._taking.get(number)
        if taking is None and number not in self._taking:
            taking = self._taking[number] = self._made(number)
        return taking

    def _made(self, number: int) -> RecordReader | None:
        program = self._programs.get(number)
        if self._announcement is None or program is None or program == SLEEP or program.sleeping:
            return None
        try:
            return RecordReader(self._announcement, program, self._needs)
        except SchemaError:
            return None  # a program of another stream
