"""What of the proxy's settings concerns its fleet."""

from __future__ import annotations

from protocols.acquisition.parts import ProgramStyle
from protocols.programs import ListenSchedule
from proxy.batching import BatchLimits
from proxy.clock_bounds import ClockBounds
from proxy.fleet import FleetLimits
from proxy.settings import ProxySettings
from proxy.tracking_limits import TrackingLimits


def fleet_limits(settings: ProxySettings) -> FleetLimits:
    """Return the settings that concern the fleet."""
    return FleetLimits(
        motes=settings.max_motes,
        streams=settings.max_streams,
        tracking=TrackingLimits(
            silence_after_us=settings.silence_after,
            patience_us=settings.patience,
            clock=ClockBounds(settings.max_clock_ahead or None, settings.max_clock_behind or None),
            clock_tolerance_us=settings.clock_tolerance,
            reorder_within_us=settings.reorder_within,
        ),
        batches=BatchLimits(settings.waiting_samples, settings.batch_rows, settings.batch_size),
        style=ProgramStyle(settings.samples_per_packet, ListenSchedule(settings.listen_every, settings.listen_for)),
    )
