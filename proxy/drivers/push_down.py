"""How much of a sampling program a device carries out itself, and what is left to the proxy and to the cluster.

Pure functions. A device carries out as much as it can, as that saves energy; its driver adds bands, dead bands and the
rate, which cost the proxy almost nothing. Aggregates and events that a device cannot report are left to the cluster.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from protocols.text.durations import format_duration
from protocols.wire.programs import Panes, SamplingProgram, SendOnChange, Several, VehicleCount, VehicleEvents
from proxy.drivers.driver import Capabilities


@dataclass(frozen=True, slots=True)
class PushDown:
    """A program, split between a device, its driver and the cluster.

    Parameters
    ----------
    accepted
        The part of device and driver together, which packets name.
    device
        The part of the device.
    left_out
        What the device leaves out, in words.
    """

    accepted: SamplingProgram
    device: SamplingProgram
    left_out: tuple[str, ...] = ()


def push_down(program: SamplingProgram, capabilities: Capabilities) -> PushDown:
    """Split a program for a device.

    A dead band is pushed down only where bands are, too: a device that drops small changes before the proxy checks
    the bands would hide a value that has just entered one.
    """
    if program.sleeping:
        return PushDown(program, program)
    left_out: list[str] = []
    accepted = program
    report = program.report
    events = isinstance(report, VehicleEvents | VehicleCount) and not capabilities.detects_events
    panes = isinstance(report, Panes) and not capabilities.aggregates
    several = isinstance(report, Several) and not (capabilities.aggregates and capabilities.detects_events)
    if events or panes or several:
        left_out.append("several reports at once" if several else "vehicles" if events else "partial aggregates")
        # Bands select events, not samples; all samples are needed to find events.
        accepted = msgspec.structs.replace(program, report=None, bands=() if events else program.bands)
    device = accepted
    if device.bands and not capabilities.filters:
        left_out.append("bands")
        device = msgspec.structs.replace(device, bands=())
    if isinstance(device.report, SendOnChange) and (not capabilities.sends_on_change or device.bands != accepted.bands):
        left_out.append("dead bands")
        device = msgspec.structs.replace(device, report=None)
    if not capabilities.changes_rate:
        left_out.append(f"one sample in {format_duration(program.period_us)}")
    elif program.period_us < capabilities.shortest_period_us:
        shortest = format_duration(capabilities.shortest_period_us)
        left_out.append(f"a period of {format_duration(program.period_us)}: its shortest is {shortest}")
    elif program.period_us > capabilities.longest_period_us:
        left_out.append(f"a period beyond {format_duration(capabilities.longest_period_us)}")
    return PushDown(accepted, device, tuple(left_out))
