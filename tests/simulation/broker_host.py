"""A simulated machine with a broker, and what it still knows after it was killed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.broker import PORT, Broker, BrokerLimits

if TYPE_CHECKING:
    from collections.abc import Callable

    from protocols.mqtt.messages import Message
    from tests.simulation.broker import SessionState, Watcher
    from tests.simulation.hosts import Host
    from tests.simulation.network import Network
    from tests.simulation.virtual_loop import VirtualLoop

SAVED_EVERY_NS = 30_000_000_000
"""A broker that keeps an old memory has saved it this often."""


class BrokerHost:
    """The machine.

    Parameters
    ----------
    loop, network, host
        Where it runs.
    """

    def __init__(self, loop: VirtualLoop, network: Network, host: Host) -> None:
        self.loop = loop
        self.network = network
        self.host = host
        self.limits = BrokerLimits()
        self.observers: list[Callable[[Message], None]] = []
        """Called with each message that the broker accepts, before any subscriber has it."""
        self.watcher: Watcher | None = None
        """Sees what becomes of messages."""
        self.broker = Broker(self.limits, (), {})
        self.dropped = 0
        """Messages that no queue had room for."""
        self.lost_batches = 0
        """Batches that it was to lose."""
        self.malformed: list[str] = []
        """What clients have sent that is not MQTT."""
        self._saved: dict[str, Message] = {}
        self._sessions: dict[str, SessionState] = {}
        self._begin({}, {})
        self._save()

    @property
    def address(self) -> str:
        """HOST:PORT."""
        return f"{self.host.name}:{PORT}"

    def watch(self, watcher: Watcher) -> None:
        """Let something see what becomes of messages."""
        self.watcher = self.broker.watcher = watcher

    def kill(self) -> None:
        """Kill it."""
        if self.host.incarnation is not None:
            self._sessions = self.broker.kept_sessions()
            self.loop.kill(self.host)
            self.network.killed(self.host)
            self._count()

    def start(self, memory: str = "kept") -> None:
        """Start it again, with its memory "kept", "lost" or "old"; sessions are kept only with all else."""
        if self.host.incarnation is None:
            sessions, self._sessions = self._sessions, {}
            if memory != "kept":
                for state in sessions.values():
                    self.broker.forget(state)
                sessions = {}
            self._begin({"kept": self.broker.retained, "lost": {}, "old": self._saved}[memory], sessions)

    def count(self) -> None:
        """Add up what this process has counted."""
        self._count()

    def _begin(self, retained: dict[str, Message], sessions: dict[str, SessionState]) -> None:
        process = self.host.start()
        chance = iter(process.dice.random, None)
        self.broker = Broker(self.limits, chance, retained, self._observe, sessions, self.watcher)
        self.network.listen(self.host, PORT, self.broker.session)

    def _observe(self, message: Message) -> None:
        for observe in self.observers:
            observe(message)

    def _count(self) -> None:
        self.dropped += self.broker.dropped.total()
        self.broker.dropped.clear()
        self.lost_batches += self.broker.lost_batches
        self.broker.lost_batches = 0
        self.malformed += self.broker.malformed
        self.broker.malformed.clear()

    def _save(self) -> None:
        self._saved = dict(self.broker.retained)
        self.loop.schedule_in(SAVED_EVERY_NS, self._save)
