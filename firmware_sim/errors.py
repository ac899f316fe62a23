"""What the simulator refuses."""

from __future__ import annotations

from protocols.errors import FjordError


class SimulationError(FjordError):
    """Anything a simulation cannot do."""


class TraceError(SimulationError):
    """A trace file that cannot be replayed."""


class MissingLibraryError(SimulationError):
    """Something optional that is not installed."""
