"""The text of a settings file (program or fleet): errors with their place, durations, listen schedules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from firmware_sim.power.paper_programs import NO_LISTENING
from protocols.errors import ProgramError, SettingsError
from protocols.power.constants_file import line_of
from protocols.text.durations import DurationError, parse_duration_us
from protocols.wire.programs import ListenSchedule


class ListenTable(Protocol):
    """``listen = { every = "30s", for = "50ms" }``."""

    every: str
    window: str


@dataclass(frozen=True, slots=True)
class SettingsText:
    """A text, and what its file is called."""

    text: str
    origin: str

    def wrong(self, path: str, reason: str, hint: str | None = None) -> SettingsError:
        """Return the error about the entry with this path."""
        line = line_of(self.text, path)
        where = self.origin if line is None else f"line {line} of {self.origin}"
        return SettingsError(f"{where}, field {path}: {reason}", hint=hint)

    def duration_us(self, words: str, path: str) -> int:
        """Return the duration that an entry has.

        Raises
        ------
        SettingsError
            If it is none, or no time at all.
        """
        try:
            found = parse_duration_us(words)
        except DurationError as error:
            raise self.wrong(path, error.message, error.hint) from error
        if found == 0:
            raise self.wrong(path, f"it must be longer than {words}")
        return found

    def schedule(self, listen: ListenTable | Literal["never"]) -> ListenSchedule:
        """Return when a mote listens by the entry ``listen``; raises as :meth:`duration_us`, or if windows overlap."""
        if isinstance(listen, str):
            return NO_LISTENING
        every_us, for_us = (
            self.duration_us(listen.every, "listen.every"),
            self.duration_us(listen.window, "listen.for"),
        )
        try:
            return ListenSchedule(every_us, for_us)
        except ProgramError as error:
            raise self.wrong("listen", error.message, error.hint) from error
