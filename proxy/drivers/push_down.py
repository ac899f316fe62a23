"""Which part of a sampling program a device does itself, and what is left to the proxy and to the cluster.

Pure functions. A device does as much as it can, for that saves its energy; its driver adds bands, dead bands and the
rate, which cost the proxy nothing. Aggregates and events that a device cannot find are left to the cluster.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from protocols.text.durations import format_duration
from protocols.wire.programs import Panes, SamplingProgram, SendOnChange, Several, VehicleCount, VehicleEvents
from proxy.drivers.driver import Capabilities


@dataclass(frozen=True, slots=True)
class PushDown:
    """A program, taken apart.

    Parameters
    ----------
    taken
        What device and driver do together: the fleet asks for this, and packets carry its number.
    device
        What the device does.
    left
        What it does not, in words.
    """

    taken: SamplingProgram
    device: SamplingProgram
    left: tuple[str, ...] = ()


def push_down(program: SamplingProgram, capabilities: Capabilities) -> PushDown:
    """Take a program apart for a device.

    A dead band is pushed down only where bands are, too: a device that drops small changes before the proxy looks at
    the bands would hide a value that just came into one.
    """
    if program.sleeping:
        return PushDown(program, program)
    left: list[str] = []
    taken = program
    report = program.report
    events = isinstance(report, VehicleEvents | VehicleCount) and not capabilities.detects_events
    panes = isinstance(report, Panes) and not capabilities.aggregates
    parts = isinstance(report, Several) and not (capabilities.aggregates and capabilities.detects_events)
    if events or panes or parts:
        left.append("several reports at once" if parts else "vehicles" if events else "partial aggregates")
        # Bands of events say which are of interest, not which samples; all samples are needed to find them.
        taken = msgspec.structs.replace(program, report=None, bands=() if events else program.bands)
    device = taken
    if device.bands and not capabilities.filters:
        left.append("bands")
        device = msgspec.structs.replace(device, bands=())
    if isinstance(device.report, SendOnChange) and (not capabilities.sends_on_change or device.bands != taken.bands):
        left.append("dead bands")
        device = msgspec.structs.replace(device, report=None)
    if not capabilities.changes_rate:
        left.append(f"one sample in {format_duration(program.period_us)}")
    elif program.period_us < capabilities.shortest_period_us:
        shortest = format_duration(capabilities.shortest_period_us)
        left.append(f"a period of {format_duration(program.period_us)}: its shortest is {shortest}")
    elif program.period_us > capabilities.longest_period_us:
        left.append(f"a period beyond {format_duration(capabilities.longest_period_us)}")
    return PushDown(taken, device, tuple(left))
