"""While a broker is away, the log has a line a minute, however often it is tried."""

from __future__ import annotations

from protocols.mqtt.reconnecting import REPEATED_SECONDS, Outage


def test_an_outage_is_logged_once_a_minute() -> None:
    outage = Outage()
    logged = [now for now in range(1_000, 1_300, 10) if outage.failed("refused", float(now))]
    assert logged == [1_000, 1_060, 1_120, 1_180, 1_240]
    assert outage.attempts == 30
    assert outage.seconds(1_300.0) == 300.0


def test_another_reason_is_logged_at_once() -> None:
    outage = Outage()
    reasons = ["refused", "refused", "no route", "no route", "refused"]
    assert [outage.failed(each, float(now)) for now, each in enumerate(reasons)] == [True, False, True, False, True]
    assert outage.failed("refused", 4.0 + REPEATED_SECONDS)


def test_an_outage_that_has_not_begun_has_lasted_no_time() -> None:
    assert Outage().seconds(5.0) == 0.0
