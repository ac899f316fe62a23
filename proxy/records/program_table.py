"""The latest sampling programs of a proxy, by number.

Samples carry no field names, only the number of the program under which they were taken. A mote may deliver samples of
an older program long after a newer one was sent, so the last programs are kept, also over a restart.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from protocols.wire.programs import SLEEP, SamplingProgram, program_number
from proxy.records.program_routes import Needs, Routes, routes_of

MOST_PROGRAMS = 1_000
"""Programs that are kept. A number is derived from the content, so all motes share them."""
MOST_ROUTES = 256
"""Pairs of a program and needs whose routes are kept: few for each kind of mote."""


class ProgramTable:
    """Programs by number; the least recently demanded is removed first.

    Parameters
    ----------
    programs
        From before a restart, the most recently demanded last.
    most
        How many are kept.
    """

    def __init__(self, programs: Iterable[SamplingProgram] = (), *, most: int = MOST_PROGRAMS) -> None:
        self._programs: OrderedDict[int, SamplingProgram] = OrderedDict()
        self._most = most
        self._routes: OrderedDict[tuple[int, int], tuple[SamplingProgram, Needs, Routes]] = OrderedDict()
        for program in programs:
            self.note(program)

    def note(self, program: SamplingProgram) -> int:
        """Keep `program` and return its number."""
        number = program_number(program)
        if program != SLEEP:
            self._programs[number] = program
            self._programs.move_to_end(number)
            if len(self._programs) > self._most:
                self._programs.popitem(last=False)
        return number

    def get(self, number: int) -> SamplingProgram | None:
        """Return the program with this number, None if it is not known."""
        return SLEEP if number == 0 else self._programs.get(number)

    def routes(self, program: SamplingProgram, needs: Needs) -> Routes:
        """Return the routes of a program under needs; motes that share these very objects share their routes."""
        key = id(program), id(needs)
        found = self._routes.get(key)
        if found is None:
            # The objects are kept with their routes, so that no others can have their identities.
            found = self._routes[key] = program, needs, routes_of(program, needs)
            if len(self._routes) > MOST_ROUTES:
                self._routes.popitem(last=False)
        return found[2]

    def __len__(self) -> int:
        return len(self._programs)
