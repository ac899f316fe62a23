"""A clock that stands still until a test moves it."""

from __future__ import annotations

from protocols.durations import parse_duration_us


class FakeClock:
    """Seconds since the test began.

    >>> clock = FakeClock()
    >>> clock.advance("1m")
    >>> clock()
    60.0
    """

    def __init__(self) -> None:
        self._now_us = 0

    def __call__(self) -> float:
        """Return what time it is."""
        return self._now_us / 1e6

    def advance(self, duration: str) -> None:
        """Let time pass: ``10s``, ``500ms``.

        Raises
        ------
        DurationError
            If that is no duration.
        """
        self._now_us += parse_duration_us(duration)
