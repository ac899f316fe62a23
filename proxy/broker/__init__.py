"""A broker for a machine that has none running: Mosquitto where it is installed, else one inside this process.

:func:`running_broker` is what tests, demonstrations and benchmarks use; ``fjord broker`` is the same by hand.
"""

from proxy.broker.choice import Engine, LocalBroker
from proxy.broker.errors import BrokerError, BrokerFailedError, EngineMissingError, PortInUseError, UnsafeListenerError
from proxy.broker.running import running_broker

__all__ = [
    "BrokerError",
    "BrokerFailedError",
    "Engine",
    "EngineMissingError",
    "LocalBroker",
    "PortInUseError",
    "UnsafeListenerError",
    "running_broker",
]
