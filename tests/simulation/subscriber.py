"""A simulated machine that subscribes to the results and errors of all queries, by the product's MQTT client."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from protocols.mqtt.link import BrokerAddress, Message, MqttLink, Subscription
from protocols.wire import topics

if TYPE_CHECKING:
    from tests.simulation.hosts import Host
    from tests.simulation.network import Network
    from tests.simulation.virtual_loop import VirtualLoop


class Arrival(NamedTuple):
    """A message, and when it came, by true time."""

    message: Message
    at_ns: int


class Subscriber:
    """The machine; what it has received outlives its processes.

    Parameters
    ----------
    loop, network, host
        Where it runs.
    broker
        Its address.
    """

    def __init__(self, loop: VirtualLoop, network: Network, host: Host, broker: BrokerAddress) -> None:
        self.loop = loop
        self.network = network
        self.host = host
        self.arrivals: list[Arrival] = []
        self._broker = broker

    def start(self) -> None:
        """Begin its process."""
        process = self.host.start()
        subscriptions = [Subscription(topics.results("+")), Subscription(topics.query_errors("+"))]
        link = process.run(lambda: MqttLink(self._broker, client_id=self.host.name, subscriptions=subscriptions))
        self.loop.spawn(process, link.run(self._receive), "subscriber")

    def kill(self) -> None:
        """Kill its process."""
        if self.host.incarnation is not None:
            self.loop.kill(self.host)
            self.network.killed(self.host)

    async def _receive(self, message: Message) -> None:
        self.arrivals.append(Arrival(message, self.loop.world.now_ns))
