"""Addresses of brokers as people write them."""

from __future__ import annotations

import pytest

from protocols.mqtt.broker_address import BrokerAddressError, parse_broker


@pytest.mark.parametrize(
    "text", ["", ":1", "h:", "h:0", "h:65536", "h:x", "h:-1", "a b", "a/b", "[::1", "h:" + "9" * 5000]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(BrokerAddressError):
        parse_broker(text, {})
