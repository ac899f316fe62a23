"""The draw of one program on one device, at one rate and at others."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from firmware_sim.power.battery import Battery, find_battery
from firmware_sim.power.program_file import NO_LISTENING, PAPER_PROGRAMS, load_program, paper_program, period_of
from protocols.errors import OverloadError, ProgramError, SettingsError
from protocols.power.costs import Power, named
from protocols.power.estimate import Workload, draw_mw
from protocols.power.payload import check_program
from protocols.power.profiles import DeviceProfile, find_profile
from protocols.wire.programs import ListenSchedule, SamplingProgram, SendOnChange, VehicleEvents

SLOWEST_HZ, FASTEST_HZ, CURVE_POINTS = 0.1, 1000.0, 41


@dataclass(frozen=True, slots=True)
class PowerQuestion:
    """The question that the report answers.

    Parameters
    ----------
    preset
        Name or file of a device profile.
    program
        One of the paper's programs, or a file.
    rate_hz
        Samples a second; None for that of the file.
    battery
        Its name; None for the profile's usual one.
    temperature_c
        The temperature of the battery.
    workload
        The workload of the mote.
    listen
        Listen schedule of the paper's programs; None for none, as in the paper's figure.
    """

    preset: str
    program: str
    rate_hz: float | None
    battery: str | None
    temperature_c: float
    workload: Workload
    listen: ListenSchedule | None = None


@dataclass(frozen=True, slots=True, eq=False)
class PowerReport:
    """The report. Powers in milliwatts by component, lives in days."""

    question: PowerQuestion
    profile: DeviceProfile
    battery: Battery
    program: SamplingProgram
    draw_mw: Power
    curve_hz: tuple[float, ...]
    curve_mw: tuple[Power, ...]

    @property
    def rate_hz(self) -> float:
        """Samples a second."""
        return self.question.rate_hz or (1e6 / self.program.period_us if self.program.period_us else 0.0)

    def lifetime_days(self, factor: float = 1.0) -> float:
        """Return how long the battery lasts if the draw is `factor` times the estimate."""
        seconds = self.battery.life_seconds(
            float(self.draw_mw.sum()) * factor,
            supply_v=self.profile.processor.supply_v,
            minimum_v=self.profile.processor.minimum_v,
            temperature_c=self.question.temperature_c,
        )
        return seconds / 86_400

    def lifetime_band(self) -> tuple[float, float]:
        """Return the shortest and the longest life within the profile's uncertainty."""
        return lives_if_off(self.lifetime_days, self.profile.uncertainty)

    def as_json(self) -> dict[str, Any]:
        """Return the report as a JSON object."""
        low, high = self.lifetime_band()
        return {
            "preset": self.profile.name,
            "program": self.question.program,
            "rate_hz": self.rate_hz,
            "battery": self.battery.title,
            "temperature_c": self.question.temperature_c,
            "draw_mw": named(self.draw_mw),
            "lifetime_days": finite(self.lifetime_days()),
            "lifetime_days_low": finite(low),
            "lifetime_days_high": finite(high),
            "uncertainty": self.profile.uncertainty,
            "curve": [
                {"rate_hz": rate, "draw_mw": named(draw)}
                for rate, draw in zip(self.curve_hz, self.curve_mw, strict=True)
            ],
        }


def reasons_without_effect(report: PowerReport, *, listens: bool, plotted: bool) -> dict[str, str]:
    """Return the options of the command that mean nothing to the program of a report, with the reason.

    Parameters
    ----------
    report
        Of which question.
    listens
        Whether it was stated how often a mote listens.
    plotted
        Whether the report is plotted, with all programs of the paper if it is about one of them.
    """
    program, found = report.program, {}
    is_paper = report.question.program in PAPER_PROGRAMS
    if not isinstance(program.report, VehicleEvents) and not (plotted and is_paper):
        found["--vehicles"] = ": the program sends no vehicle events"
    if not program.bands:
        found["--kept"] = ": the program has no bands"
    if not isinstance(program.report, SendOnChange):
        found["--changed"] = ": the program does not send on change"
    if not is_paper:
        found |= dict.fromkeys(("--listen-every", "--listen-for"), ": a program file has its own listen schedule")
    elif not listens:
        found["--listen-for"] = " without --listen-every"
    return found


def lives_if_off(days: Callable[[float], float], uncertainty: float) -> tuple[float, float]:
    """Return the shortest and the longest life if the draw is off by `uncertainty` either way.

    Parameters
    ----------
    days
        The life with that many times the estimated draw.
    uncertainty
        Of the device's profile.
    """
    return days(1 + uncertainty), days(1 / (1 + uncertainty))


def finite(value: float) -> float | None:
    """Return a number that JSON can hold; None for one that is infinite."""
    return value if math.isfinite(value) else None


def answer(question: PowerQuestion) -> PowerReport:
    """Compute the report for a question.

    Raises
    ------
    SettingsError
        If preset, program or battery are unknown or wrong.
    ProgramError
        If the device cannot run the program; names the limit.
    OverloadError
        If the world demands more of the device than it has time for.
    """
    profile = find_profile(question.preset)
    program = program_at(question, profile, question.rate_hz)
    check_program(profile, program)
    hertz, draws = curve(question, profile)
    return PowerReport(
        question,
        profile,
        find_battery(question.battery or profile.battery),
        program,
        draw_mw(profile, program, question.workload),
        hertz,
        draws,
    )


def program_at(question: PowerQuestion, profile: DeviceProfile, rate_hz: float | None) -> SamplingProgram:
    """Return the program of a question, at a rate."""
    if question.program in PAPER_PROGRAMS:
        if rate_hz is None:
            raise SettingsError(f"the program {question.program!r} has no rate of its own", hint="give --rate HZ")
        return paper_program(question.program, profile, rate_hz, listen=question.listen or NO_LISTENING)
    program = load_program(Path(question.program))
    if rate_hz is None:
        return program
    return msgspec.structs.replace(program, period_us=period_of(rate_hz))


def curve(question: PowerQuestion, profile: DeviceProfile) -> tuple[tuple[float, ...], tuple[Power, ...]]:
    """Return rates and the draw of the program at each; rates that the device cannot reach are left out.

    The rate of the question is among them.
    """
    hertz: list[float] = []
    draws: list[Power] = []
    rates = {*np.geomspace(SLOWEST_HZ, FASTEST_HZ, CURVE_POINTS).tolist()}
    if question.rate_hz is not None:
        rates.add(question.rate_hz)
    for rate in sorted(rates):
        try:
            program = program_at(question, profile, rate)
            check_program(profile, program)
            draws.append(draw_mw(profile, program, question.workload))
        except (ProgramError, OverloadError):
            continue
        hertz.append(rate)
    return tuple(hertz), tuple(draws)
