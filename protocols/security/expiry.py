"""When certificates expire: what is due to be logged, as a decision, and the thread and the gauge that look.

The thread has no part in an event loop, so that a run that is recorded has no turns of it.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from protocols.event_log import get_logger
from protocols.security.errors import CertificateFileError
from protocols.security.tls import DAY_SECONDS, TlsFiles, days_to_warn_of

if TYPE_CHECKING:
    from prometheus_client import Metric

log = get_logger(__name__)

LOOK_SECONDS = 600.0


def files_to_watch(**parts: TlsFiles | None) -> dict[str, str]:
    """Return the files of certificates by what they are for, such as ``broker`` and ``broker authority``."""
    found: dict[str, str] = {}
    for use, files in parts.items():
        if files is not None and files.certificate is not None:
            found[use] = files.certificate
        if files is not None and files.authority is not None:
            found[f"{use} authority"] = files.authority
    return found


def read_expiries(files: Mapping[str, str]) -> dict[str, float]:
    """Return when the certificate of each file expires, in seconds since 1970; files that cannot be read are left out.

    Parameters
    ----------
    files
        Paths by what they are for.
    """
    from protocols.security import pem_files  # noqa: PLC0415 - only with TLS

    found = {}
    for use, file in files.items():
        with contextlib.suppress(CertificateFileError):
            certificates = pem_files.read_authorities(file)
            found[use] = pem_files.expires(certificates if use.endswith("authority") else certificates[:1])
    return found


class ExpiryWarnings:
    """Decides which certificates to warn of: those with less than 30 days left, each once a day. Pure."""

    def __init__(self) -> None:
        self._warned: dict[str, float] = {}

    def due(self, expiries: Mapping[str, float], now: float) -> dict[str, int]:
        """Return the whole days that are left of what is to be warned of now; below 0 it has expired.

        Examples
        --------
        >>> warnings = ExpiryWarnings()
        >>> warnings.due({"broker": 40 * 86_400.0, "api": 86_400.0 * 8.5}, now=0.0)
        {'api': 8}
        >>> warnings.due({"broker": 40 * 86_400.0, "api": 86_400.0 * 8.5}, now=3_600.0)
        {}
        """
        found = {}
        for use, expiry in expiries.items():
            days = days_to_warn_of(expiry, now)
            if days is not None and now - self._warned.get(use, now - DAY_SECONDS) >= DAY_SECONDS:
                self._warned[use] = now
                found[use] = days
        return found


@contextlib.contextmanager
def watched(files: Mapping[str, str], *, clock: Callable[[], float] = time.time) -> Iterator[None]:
    """Warn of certificates that expire soon, while the block runs.

    Parameters
    ----------
    files
        As for :func:`read_expiries`; without any, nothing is done.
    clock
        Seconds since 1970.
    """
    if not files:
        yield
        return
    ended = threading.Event()

    def look() -> None:
        warnings = ExpiryWarnings()
        while True:
            for use, days in warnings.due(read_expiries(files), clock()).items():
                log.warning("a certificate expires soon", use=use, file=files[use], days_left=days)
            if ended.wait(LOOK_SECONDS):
                return

    thread = threading.Thread(target=look, name="certificates", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(timeout=1.0)


class ExpiryCollector(Collector):
    """The gauge of when certificates expire, read from their files when it is scraped.

    Parameters
    ----------
    files
        As for :func:`read_expiries`.
    """

    def __init__(self, files: Mapping[str, str]) -> None:
        self._files = files

    def collect(self) -> Iterable[Metric]:
        """Return the gauge."""
        gauge = GaugeMetricFamily(
            "fjord_certificate_expiry_timestamp_seconds",
            "When a certificate of this part expires, seconds since 1970.",
            labels=["use"],
        )
        for use, expiry in read_expiries(self._files).items():
            gauge.add_metric([use], expiry)
        yield gauge
