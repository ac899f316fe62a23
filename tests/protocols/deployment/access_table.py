"""What each user may do on which topic, written by hand: rules and a real broker are held to it.

An invented topic is in it, and so is one of each kind of another proxy, mote, cluster and query.
"""

from __future__ import annotations

from protocols.deployment.names import DevicePart, GatewayPart, Names, ProxyPart, SubscriberPart

NAMES = Names(
    cluster="cluster",
    proxies=(
        ProxyPart("roadside", reads=("zigbee2mqtt/#",), writes=("zigbee2mqtt/+/set", "zigbee2mqtt/bridge/request/#")),
        ProxyPart("harbour"),
    ),
    gateways=(
        GatewayPart("roadside-motes", "roadside", ("m1", "m2")),
        GatewayPart("mast", "roadside", ("m3",)),
        GatewayPart("harbour-motes", "harbour", ("h1",)),
    ),
    subscribers=(SubscriberPart("wall", ("slow",)), SubscriberPart("archive")),
    devices=(
        DevicePart("bridge", reads=("zigbee2mqtt/+/set", "zigbee2mqtt/bridge/request/#"), writes=("zigbee2mqtt/#",)),
    ),
)

TABLE = """
motes/roadside/m1/packet            roadside r          roadside-motes w
motes/roadside/m2/packet            roadside r          roadside-motes w
motes/roadside/m3/packet            roadside r          mast w
motes/roadside/unknown/packet       roadside r
motes/harbour/h1/packet             harbour r           harbour-motes w
motes/roadside/m1/announcement      roadside r          roadside-motes w
motes/roadside/m2/announcement      roadside r          roadside-motes w
motes/roadside/m3/announcement      roadside r          mast w
motes/roadside/m1/control           roadside w          roadside-motes r
motes/roadside/m2/control           roadside w          roadside-motes r
motes/roadside/m3/control           roadside w          mast r
motes/harbour/h1/control            harbour w           harbour-motes r
proxies/roadside/batches            roadside w          cluster r
proxies/harbour/batches             harbour w           cluster r
proxies/unknown/batches             cluster r
proxies/roadside/acks               roadside r          cluster w
proxies/harbour/acks                harbour r           cluster w
proxies/roadside/resumptions        roadside w          cluster r
proxies/roadside/status             roadside rw         harbour r           cluster r
proxies/harbour/status              roadside r          harbour rw          cluster r
proxies/roadside/clock              roadside w          cluster r
proxies/roadside/spool              roadside w          cluster r
proxies/roadside/waits              roadside w          cluster r
proxies/roadside/streams/traffic    roadside w          cluster r
proxies/harbour/streams/traffic     harbour w           cluster r
proxies/roadside/motes/m1           roadside rw         harbour r           cluster r
proxies/harbour/motes/m1            roadside r          harbour rw          cluster r
proxies/roadside/demands/traffic    roadside w          cluster r
proxies/roadside/requests/traffic   roadside w          cluster r
proxies/roadside/claim              roadside rw
proxies/harbour/claim               harbour rw
proxies/roadside/backlog/7-1        roadside rw
proxies/harbour/backlog/7-1         harbour rw
clusters/cluster/status             cluster rw          roadside r          harbour r
clusters/second/status              roadside r          harbour r
clusters/cluster/claim              cluster rw
clusters/second/claim
demands/traffic                     cluster w           roadside r          harbour r
demands/traffic/3                   cluster w           roadside r          harbour r
results/slow                        cluster w           wall r              archive r
results/fast                        cluster w           archive r
errors/slow                         cluster w           wall r              archive r
errors/fast                         cluster w           archive r
invented/topic
/zigbee2mqtt/lamp                   roadside r          bridge w
/zigbee2mqtt/lamp/set               roadside rw         bridge rw
/zigbee2mqtt/bridge/request/x/y     roadside rw         bridge rw
/elsewhere/lamp
/fjord
"""


def _rows():
    for line in TABLE.strip().splitlines():
        topic, *cells = line.split()
        allowed = dict(zip(cells[::2], cells[1::2], strict=True))
        yield topic[1:] if topic.startswith("/") else f"fjord/v1/{topic}", allowed


ALLOWED = dict(_rows())
"""By topic: what each user may do, ``r``, ``w`` or both; others nothing."""


def may(user, letter):
    """Topics that a user may read (``r``) or write (``w``)."""
    return {topic for topic, allowed in ALLOWED.items() if letter in allowed.get(user, "")}
