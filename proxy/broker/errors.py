"""Errors of a broker that Fjord starts."""

from __future__ import annotations

from protocols.errors import FjordError


class BrokerError(FjordError):
    """A broker cannot be started, or it ended."""


class PortInUseError(BrokerError):
    """Something already listens where the broker should."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(
            f"port {port} on {host} is in use, perhaps by another broker",
            hint="end that program, use it as the broker, or choose another port with --port (0: any free one)",
        )
        self.host = host
        self.port = port


class AddressError(BrokerError):
    """The broker cannot listen on an address for another reason: no such address, or no permission."""

    def __init__(self, host: str, port: int, reason: str) -> None:
        super().__init__(
            f"cannot listen on {host} port {port}: {reason}",
            hint="give an address of this machine with --host and a port of 1024 or above with --port",
        )
        self.host = host
        self.port = port
        self.reason = reason


class EngineMissingError(BrokerError):
    """The request needs Mosquitto, and this machine has none."""

    def __init__(self, wanted_for: str) -> None:
        super().__init__(
            f"{wanted_for} needs Mosquitto, which is not installed",
            hint="install it (Debian, Ubuntu: apt-get install mosquitto)",
        )
        self.wanted_for = wanted_for


class EngineLimitError(BrokerError):
    """The embedded broker does not support an option."""

    def __init__(self, option: str) -> None:
        super().__init__(f"the embedded broker amqtt cannot do {option}", hint="use --engine mosquitto")
        self.option = option


class UnsafeListenerError(BrokerError):
    """A broker that other machines can reach must require passwords."""

    def __init__(self, host: str) -> None:
        super().__init__(
            f"a broker on {host} could be reached from other machines by anyone",
            hint="listen on 127.0.0.1, or give users and passwords with --password-file (made by mosquitto_passwd)",
        )
        self.host = host


class BrokerFailedError(BrokerError):
    """The broker did not start, or it ended by itself."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the broker failed: {reason}", hint="more is in the event log with --log-level debug")
        self.reason = reason
