"""Errors of the simulator."""

from __future__ import annotations

from protocols.errors import FjordError


class SimulationError(FjordError):
    """Base of all errors of a simulation."""


class TraceError(SimulationError):
    """A trace file that cannot be replayed."""


class MissingLibraryError(SimulationError):
    """An optional library that is not installed."""
