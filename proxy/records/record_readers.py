"""The readers of one mote's records, by program: a mote may deliver records of an older program. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocols.errors import SchemaError
from protocols.wire.packets import Announcement
from protocols.wire.programs import SLEEP, SamplingProgram, program_number, publishing_program
from proxy.records.program_routes import Needs
from proxy.records.record_reader import RecordReader
from proxy.records.waiting_tuples import FieldChanges, MotePosition, PacketTuples, Publishing

if TYPE_CHECKING:
    from proxy.records.program_routes import ProgramTable


class RecordReaders:
    """The readers of one mote.

    Parameters
    ----------
    programs
        The programs that the proxy knows.
    """

    def __init__(self, programs: ProgramTable) -> None:
        self._programs = programs
        self._announcement: Announcement | None = None
        self._publishing: Publishing | None = None
        self._changes: FieldChanges | None = None
        self._own: tuple[int, SamplingProgram] | None = None
        """The program of a device that publishes freely, with its number: the proxy sends it no other."""
        self._needs: Needs = ()
        self._readers: dict[int, RecordReader | None] = {}
        self._lost_since_us: int | None = None
        """Since this instant samples are missing that a mote with another program may have left out."""

    def announced(self, announcement: Announcement, publishing: Publishing | None = None) -> None:
        """Set what the mote has announced, and how it publishes if it is a driven device."""
        if (announcement, publishing) == (self._announcement, self._publishing):
            return
        self._readers.clear()
        known = self._announcement
        if known is None or known.stream != announcement.stream or publishing != self._publishing:
            self._changes = None
            if publishing is not None and not publishing.freely:
                self._changes = FieldChanges(announcement.stream, publishing.event_fields)
        self._announcement, self._publishing = announcement, publishing
        self._own = None
        if publishing is not None and publishing.freely:
            program = publishing_program(announcement.stream)
            self._own = program_number(program), program

    def program(self, number: int) -> SamplingProgram | None:
        """Return the program with this number; None if it is not known."""
        return self._own[1] if self._own is not None and self._own[0] == number else self._programs.get(number)

    def route(self, needs: Needs) -> None:
        """Set what queries need of the mote from now on."""
        self._needs = needs
        for reader in self._readers.values():
            if reader is not None:
                reader.route(needs)

    def learned(self) -> None:
        """Note that a program was added to the table: one that was unknown may be known now."""
        self._readers = {number: reader for number, reader in self._readers.items() if reader is not None}

    def began(self, number: int) -> None:
        """Note that the mote has begun to run a program."""
        self._readers.pop(number, None)

    def rebooted(self) -> None:
        """Note that the mote has rebooted."""
        self._readers.clear()
        self._lost_since_us = None

    def lost(self, number: int, known_until_us: int | None) -> None:
        """Note that packets of the mote are missing.

        Parameters
        ----------
        number
            The program of the next one.
        known_until_us
            The mote's low watermark before; None if it is not known.
        """
        reader = self._readers.get(number)
        if reader is not None:
            reader.lost(known_until_us)
        # Changes may have been lost in the last packet of the program before, or while the proxy was away.
        elif not self._readers or any(each is not None and each.fills for each in self._readers.values()):
            self._lost_since_us = known_until_us

    def unknown_from(self, number: int, known_until_us: int | None, position: MotePosition) -> PacketTuples | None:
        """Return what is not known of a mote that sends nothing any more; None for nothing.

        Parameters
        ----------
        number
            The program that it runs.
        known_until_us
            Its low watermark; None if it is not known.
        position
            Of its last packet.
        """
        reader = self._readers.get(number)
        return None if reader is None or known_until_us is None else reader.unknown_from(known_until_us, position)

    def fills(self, number: int) -> bool:
        """Return whether a packet without records means unchanged samples, which are filled in."""
        reader = self._readers.get(number) if self._lost_since_us is None else self.of(number)
        return reader is not None and reader.fills

    def held_back(self, number: int | None, low_watermark_us: int | None) -> int | None:
        """Return the low watermark of a mote's tuples: an event that has not ended holds it back at its beginning."""
        reader = self._readers.get(number or 0)
        open_us = None if reader is None else reader.open_us
        return low_watermark_us if open_us is None or low_watermark_us is None else min(open_us, low_watermark_us)

    def of(self, number: int) -> RecordReader | None:
        """Return the reader of a program's records; None if the program is not known, or of another stream."""
        reader = self._readers.get(number)
        if reader is None and number not in self._readers:
            reader = self._readers[number] = self._made(number)
            if reader is not None and self._lost_since_us is not None:
                reader.lost(self._lost_since_us)
                self._lost_since_us = None
        return reader

    def _made(self, number: int) -> RecordReader | None:
        program = self.program(number)
        if program is not None and program.sleeping and self._publishing is not None and self._announcement is not None:
            # A driven device reports by rules of its own until it has confirmed a program.
            program = publishing_program(self._announcement.stream)
        if self._announcement is None or program is None or program == SLEEP or program.sleeping:
            return None
        try:
            return RecordReader(
                self._announcement,
                program,
                self._needs,
                self._programs.routes,
                publishing=self._publishing,
                changes=self._changes,
            )
        except SchemaError:
            return None  # a program of another stream
