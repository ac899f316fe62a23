"""Messages of devices of other makers: recorded ones, and what chance makes of them."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from protocols.wire import topics
from protocols.wire.frames import encode
from tests.fuzz.drawing import TEXTS, damaged
from tests.fuzz.fleet_target import PAUSES_US, drawn_query_demand
from tests.fuzz.proxy_world import ProxyWorld, documented_drivers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random

    from protocols.errors import FjordError

from protocols.wire.demands import QueryDemand, StreamDemand
from protocols.wire.frames import VERSION

RECORDED = Path(__file__).parents[1] / "proxy" / "drivers" / "recorded"
STREAMS = {
    "climate": ("temperature", "humidity"),
    "shelly_climate": ("temperature",),
    "esphome_temperature": ("value",),
}
NUMBERS = (0, -0.0, 1, 2**53, 2**64, -(10**30), 1e308, "1e5", "23,4", "NaN", True, None, [], {}, "\0", "x" * 2000)
MOST_STEPS = 30


class DeviceTarget:
    """Messages on the topics of the drivers in docs/how-to/connect-devices.md."""

    name = "devices"
    errors: tuple[type[FjordError], ...] = ()
    limit_seconds = 0.5

    def __init__(self) -> None:
        self._recorded = [_recorded(name) for name in ("tasmota", "shelly", "esphome")]
        self._devices = json.loads((RECORDED / "zigbee2mqtt_devices.json").read_text())
        self._states = json.loads((RECORDED / "zigbee2mqtt_states.json").read_text())

    def steps(self, dice: Random) -> Iterator[Callable[[], object]]:
        """Yield one message, one flush or some time after the other."""
        world = ProxyWorld(dice, documented_drivers())
        topic, payload = "zigbee2mqtt/bridge/devices", json.dumps(self._devices).encode()
        yield partial(world.receive, topic, payload, retain=True)
        for _ in range(dice.randrange(5, MOST_STEPS)):
            match dice.choices(range(4), (8, 2, 4, 3))[0]:
                case 0:
                    topic, payload = self._message(dice)
                    yield partial(world.receive, topic, payload, retain=dice.random() < 0.1)
                case 1:
                    stream = dice.choice(sorted(STREAMS))
                    queries = (QueryDemand("a", STREAMS[stream][:1]), drawn_query_demand("b", dice))
                    demand = StreamDemand(VERSION, "c", stream, 1, queries)
                    yield partial(world.receive, topics.demand(stream), encode(demand), retain=True)
                    yield world.merge
                case 2:
                    yield partial(world.pass_time, dice.choice(PAUSES_US))
                case _:
                    yield world.cut
                    yield world.spool
        yield world.show

    def _message(self, dice: Random) -> tuple[str, bytes]:
        match dice.randrange(5):
            case 0:
                name = dice.choice(sorted(self._states))
                topic, content = f"zigbee2mqtt/{name}", self._states[name]
            case 1:
                topic, content = "zigbee2mqtt/bridge/devices", self._devices
            case 2:
                name = dice.choice(sorted(self._states))
                topic, content = f"zigbee2mqtt/{name}/availability", {"state": dice.choice(("online", "offline", "?"))}
            case 3:
                topic = "zigbee2mqtt/bridge/response/device/configure_reporting"
                content = {
                    "status": dice.choice(("ok", "error")),
                    "transaction": dice.choice(("", "1", "x")),
                    "data": {},
                }
            case _:
                topic, content = dice.choice(self._recorded)
                topic = topic.replace("TH16", dice.choice(("TH16", "T2", "ü", "x" * 200, "a b")))
        payload = json.dumps(changed(content, dice) if dice.random() < 0.6 else content).encode()
        return topic, damaged(payload, dice) if dice.random() < 0.2 else payload


def _recorded(name: str) -> tuple[str, Any]:
    found = json.loads((RECORDED / f"{name}.json").read_text())
    return found["topic"], found["payload"]


def changed(content: Any, dice: Random) -> Any:
    """Return JSON of the same shape but for one place."""
    if isinstance(content, dict) and content and dice.random() < 0.9:
        name = dice.choice(sorted(content))
        found = dict(content)
        match dice.randrange(8):
            case 0:
                del found[name]
            case 1:
                found[dice.choice(TEXTS)] = found[name]
            case _:
                found[name] = changed(found[name], dice)
        return found
    if isinstance(content, list) and content and dice.random() < 0.9:
        place = dice.randrange(len(content))
        return [*content[:place], changed(content[place], dice), *content[place + dice.choice((0, 1)) :]]
    return nested(dice.choice((3, 50, 5_000))) if dice.random() < 0.05 else dice.choice(NUMBERS)


def nested(depth: int) -> Any:
    """Return lists in lists."""
    found: Any = 1
    for _ in range(min(depth, 900)):  # Python's own encoder goes no deeper
        found = [found]
    return found
