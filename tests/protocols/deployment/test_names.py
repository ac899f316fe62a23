"""Names of parts: what may be in access rules, and what never gets into them."""

from __future__ import annotations

import pytest

from protocols.deployment.broker_configuration import acl_text, rules_of
from protocols.deployment.names import (
    DevicePart,
    GatewayPart,
    Names,
    ProxyPart,
    SubscriberPart,
    check_filter,
    parse_mote,
    parse_subscriber,
)
from protocols.errors import FjordError, TopicError
from protocols.security.errors import SecurityError

BAD_NAMES = ["+", "#", "p/+", "a b", "a\nuser root", "", "-a", "e\u0301", "a" * 65, "a/b", "$SYS", "%u", "a\x00"]


@pytest.mark.parametrize("name", BAD_NAMES)
@pytest.mark.parametrize(
    "names",
    [
        lambda name: Names(cluster=name),
        lambda name: Names(proxies=(ProxyPart(name),)),
        lambda name: Names(proxies=(ProxyPart("p"),), gateways=(GatewayPart(name, "p", ("m",)),)),
        lambda name: Names(proxies=(ProxyPart("p"),), gateways=(GatewayPart("g", "p", (name,)),)),
        lambda name: Names(gateways=(GatewayPart("g", name, ("m",)),)),
        lambda name: Names(subscribers=(SubscriberPart(name),)),
        lambda name: Names(subscribers=(SubscriberPart("s", (name,)),)),
        lambda name: Names(devices=(DevicePart(name),)),
    ],
)
def test_names_that_are_no_part_of_a_topic_are_refused(names, name):
    with pytest.raises(TopicError):
        names(name).check()


def test_users_of_the_broker_have_names_of_ascii_and_what_they_read_need_not():
    gateway, subscriber = GatewayPart("g", "p", ("küche",)), SubscriberPart("s", ("größe", "_x"))
    Names(proxies=(ProxyPart("p"),), gateways=(gateway,), subscribers=(subscriber,)).check()
    for names in (
        Names(cluster="ä"),
        Names(proxies=(ProxyPart("ä"),)),
        Names(gateways=(GatewayPart("g", "ä", ("m",)),)),
        Names(subscribers=(SubscriberPart("_s"),)),
    ):
        with pytest.raises(TopicError, match="has access rules"):
            names.check()


@pytest.mark.parametrize(
    "text", ["p", "p/", "/m", "p/+", "+/m", "p/#", "p/m@", "p/m@+", "p/m/n", "", "p/m m", "p/m\nuser x"]
)
def test_what_is_no_mote_is_refused(text):
    with pytest.raises(FjordError):
        parse_mote(text)


@pytest.mark.parametrize("text", ["", "=a", "s=", "s=+", "s=a,,b", "s=#", "a b"])
def test_what_is_no_subscriber_is_refused(text):
    with pytest.raises(FjordError):
        parse_subscriber(text)


@pytest.mark.parametrize(
    "text",
    [
        "", "#", "+/#", "+/+/#", "fjord/#", "fjord/v1/#", "fjord/v1/+/x", "+/v1/proxies/p/acks", "fjord/+/x",
        "+/+/motes",
        "$SYS/#", "a#", "a/#/b", "a+/b", " a", "a ", "a\nuser root", "a\x00", "x" * 1_001,
    ],
)  # fmt: skip
def test_filters_that_reach_into_topics_of_fjord_or_are_none_are_refused(text):
    with pytest.raises(SecurityError):
        check_filter(text)
    with pytest.raises(SecurityError):
        Names(proxies=(ProxyPart("p", reads=(text,)),)).check()
    with pytest.raises(SecurityError):
        Names(devices=(DevicePart("d", writes=(text,)),)).check()


@pytest.mark.parametrize(
    "text",
    ["zigbee2mqtt/#", "tele/+/SENSOR", "+/events/rpc", "+/status/+", "fjord", "fjord/v2/x", "fjord/+", "a b/c", "v1/x"],
)
def test_filters_of_devices_are_accepted(text):
    assert check_filter(text) == text


@pytest.mark.parametrize(
    "names",
    [
        Names(cluster="a", proxies=(ProxyPart("a"),)),
        Names(proxies=(ProxyPart("a"), ProxyPart("a"))),
        Names(proxies=(ProxyPart("a"),), subscribers=(SubscriberPart("a"),)),
        Names(cluster="broker"),
        Names(subscribers=(SubscriberPart("authority"),)),
        Names(devices=(DevicePart("api"),)),
    ],
)
def test_no_two_parts_are_one_user(names):
    with pytest.raises(SecurityError, match="belongs to another part"):
        names.check()


def test_motes_come_to_their_gateway():
    names = Names(proxies=(ProxyPart("p"), ProxyPart("q")))
    found = names.with_motes(map(parse_mote, ["p/a", "p/b", "p/c@mast", "q/a", "p/a"]))
    assert found.gateways == (
        GatewayPart("p-motes", "p", ("a", "b")),
        GatewayPart("mast", "p", ("c",)),
        GatewayPart("q-motes", "q", ("a",)),
    )


def test_a_gateway_has_motes_of_one_proxy():
    names = Names(proxies=(ProxyPart("p"), ProxyPart("q"))).with_motes([("mast", "p", "a")])
    with pytest.raises(SecurityError, match="gateway mast has motes of proxy p, not of q"):
        names.with_motes([("mast", "q", "b")])
    with pytest.raises(SecurityError, match="there is no proxy r"):
        names.with_motes([("r-motes", "r", "b")])


def test_a_part_is_replaced_and_removed():
    names = Names(subscribers=(SubscriberPart("wall"),))
    changed = names.with_part(SubscriberPart("wall", ("slow",)))
    assert changed.subscribers == (SubscriberPart("wall", ("slow",)),)
    assert changed.without("wall") == Names()
    assert "wall" not in acl_text(rules_of(Names()))
