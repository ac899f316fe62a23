"""Which version of MQTT is offered first: the best one, unless the broker took a lesser one shortly before. Pure.

offered     5  3.1.1              3.1.1            5  3.1.1
answered    -  yes                yes              yes
            | a connect that failed by chance, or an older broker
            | ------ not offered for ten minutes --|
"""

from __future__ import annotations

from collections.abc import Sequence

from protocols.mqtt.messages import Version

AGAIN_SECONDS = 600.0
"""A broker that did not take a version is offered it again after this time, with the next connection."""


class VersionChoice:
    """The versions of MQTT that a link may speak.

    Parameters
    ----------
    versions
        The best first.
    """

    def __init__(self, versions: Sequence[Version]) -> None:
        self._versions = tuple(versions)
        self._lesser: Version | None = None
        self._until = 0.0

    def order(self, now: float) -> tuple[Version, ...]:
        """Return the versions in the order in which they are offered, given the time in seconds."""
        if self._lesser is None or now >= self._until:
            return self._versions
        return (self._lesser, *(each for each in self._versions if each is not self._lesser))

    def note(self, accepted: Version, now: float) -> None:
        """Note which version the broker has accepted."""
        if accepted is self._versions[0]:
            self._lesser = None
        elif accepted is not self._lesser or now >= self._until:
            self._lesser, self._until = accepted, now + AGAIN_SECONDS
