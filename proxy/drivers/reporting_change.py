"""A change of a Zigbee device's reporting in progress: which requests are open, failed, or done.

Pure. A device on batteries sleeps, and a request to it fails then; it is sent again once the device has sent a message.
"""

from __future__ import annotations

from dataclasses import dataclass

from protocols.wire.programs import SamplingProgram
from proxy.drivers.zigbee_reporting import ReportingRequest


@dataclass(slots=True)
class _Open:
    request: ReportingRequest
    attempts: int = 0
    transaction: str = ""
    sent_us: int = 0
    failed_us: int | None = None
    awake_since: bool = False


class ReportingChange:
    """The requests of one program.

    Parameters
    ----------
    program
        To be run.
    requests
        By field.
    dead_bands
        Fields whose dead band the device keeps once its request is accepted.
    """

    def __init__(
        self, program: SamplingProgram, requests: dict[str, ReportingRequest], dead_bands: frozenset[str]
    ) -> None:
        self.program = program
        self.not_before_us: int | None = None
        self._open = {name: _Open(request) for name, request in requests.items()}
        self._kept = dead_bands
        self._accepted: set[str] = set()

    @property
    def settled(self) -> bool:
        """Whether no request is left."""
        return not self._open

    @property
    def dead_bands(self) -> frozenset[str]:
        """Fields whose dead band the device now keeps."""
        return self._kept & self._accepted

    def not_before(self, instant_us: int | None) -> None:
        """Note that no sample of the program may be stamped before an instant."""
        if instant_us is not None:
            self.not_before_us = instant_us if self.not_before_us is None else max(instant_us, self.not_before_us)

    def device_awake(self) -> None:
        """Note that the device is awake."""
        for each in self._open.values():
            each.awake_since = True

    def owns(self, transaction: str) -> bool:
        """Return whether a request of this change has this transaction."""
        return self._field(transaction) is not None

    def accepted(self, transaction: str) -> None:
        """Note that the device has accepted a request."""
        name = self._field(transaction)
        if name is not None:
            self._accepted.add(name)
            del self._open[name]

    def failed(self, transaction: str, radio_us: int) -> str:
        """The device, or the bridge, failed; return which field it was about."""
        name = self._field(transaction)
        if name is None:
            return ""
        self._mark_failed(self._open[name], radio_us)
        return name

    def due(
        self, radio_us: int, *, answer_within_us: int, retry_after_us: int, attempts: int
    ) -> tuple[list[tuple[str, ReportingRequest]], list[str]]:
        """Return the requests to send now, and the fields that are given up."""
        due: list[tuple[str, ReportingRequest]] = []
        unable: list[str] = []
        for name, each in list(self._open.items()):
            if each.transaction and radio_us - each.sent_us >= answer_within_us:
                self._mark_failed(each, radio_us)
            if each.transaction:
                continue
            if each.attempts >= attempts:
                unable.append(name)
                del self._open[name]
            elif each.failed_us is None or each.awake_since or radio_us - each.failed_us >= retry_after_us:
                due.append((name, each.request))
        return due, unable

    def sent(self, name: str, transaction: str, radio_us: int) -> None:
        """Note that a request was sent."""
        each = self._open[name]
        each.attempts += 1
        each.transaction, each.sent_us = transaction, radio_us

    def _field(self, transaction: str) -> str | None:
        return next(
            (name for name, each in self._open.items() if transaction and each.transaction == transaction), None
        )

    @staticmethod
    def _mark_failed(each: _Open, radio_us: int) -> None:
        each.transaction, each.failed_us, each.awake_since = "", radio_us, False
