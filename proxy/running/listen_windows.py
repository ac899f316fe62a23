"""Whether a control still reaches a mote while it listens, and when the broker drops it.

Pure. A control that arrives after its window must not arrive at all: the mote's radio is off, and the proxy counts it
as unsent::

    packet received     window of 3 s
    |-------------------------------|
            | sent: expires in 3 s      (whole seconds, as MQTT has them, rounded up)
                                      | not sent
"""

from __future__ import annotations

from protocols.wire.programs import SECOND_US


def expiry_seconds(window_us: int, since_us: int, now_us: int) -> int | None:
    """Return in how many seconds a control that is sent now expires; None if its window is over.

    Parameters
    ----------
    window_us
        How long the mote listens.
    since_us, now_us
        Since when, and the present; by the radio's clock.
    """
    left_us = window_us - (now_us - since_us)
    return None if left_us <= 0 else -(-left_us // SECOND_US)
