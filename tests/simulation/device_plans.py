"""Devices of other makers in a deployment, as data that a seed draws: drivers, devices, bridges, queries and faults.

Devices publish as they like: each message should be a tuple, whatever queries run, or be rejected and counted.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import msgspec

from protocols.wire.streams import Field, FieldType, StreamSchema

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SHARE = 0.4
"""Of the schedules: they have devices."""
UPDATED_SHARE = 0.7
"""Of the bridges: they are updated."""
SECOND_US = 1_000_000
MAX_DELAY_US = 20 * SECOND_US
"""So late a message of a device that stamps its values may come."""
MERGED_WITHIN_US = 2 * SECOND_US
SAME_WITHIN_US = 5 * SECOND_US
"""Copies of one message by two gateways come within so long."""
MODULUS = 100
"""Of a counter: its device begins anew at so much."""
FLUSH_US = 1_000_000
"""Of proxies with devices, at least: each stream of devices has batches of its own."""
BASE = "z2m"
"""Of the bridge's topics."""
CLIMATE_DEFAULT_US = 20 * SECOND_US
"""Period of a query that reads thermometers of the bridge without SAMPLE."""

METERS = StreamSchema(
    "meters",
    (
        Field("site", FieldType.TEXT, fixed=True),
        Field("n", FieldType.INTEGER),
        Field("level", FieldType.REAL),
        Field("door", FieldType.TEXT),
        Field("ticks", FieldType.INTEGER),
    ),
)
CLOCKED = StreamSchema("clocked", (Field("n", FieldType.INTEGER), Field("level", FieldType.REAL)))
HALVES = StreamSchema(
    "halves", (Field("n", FieldType.INTEGER), Field("warm", FieldType.REAL), Field("damp", FieldType.REAL))
)
CLIMATE = StreamSchema(
    "z2m_th1",
    (
        Field("temperature", FieldType.REAL, "degC"),
        Field("humidity", FieldType.REAL, "%"),
        Field("n", FieldType.REAL),
        Field("tamper", FieldType.BOOLEAN),
    ),
)
CONTACTS = StreamSchema("z2m_c1", (Field("contact", FieldType.BOOLEAN), Field("n", FieldType.REAL)))
NEW_COLUMN = Field("battery_low", FieldType.BOOLEAN)
"""That contacts have once their bridge was updated, if it adds a column."""
SCHEMAS = (METERS, CLOCKED, HALVES, CLIMATE, CONTACTS)
"""What queries may read."""
BY_STREAM = {schema.name: schema for schema in SCHEMAS}
UPDATES = ("adds column", "configures no more", "configures from now on")
UPDATED_SECONDS = 60.0
"""So long after an update of a bridge it is not certain yet how its devices are read."""
SAMPLE_SECONDS = (1, 4, 7, 30)
"""Periods that queries have."""


class DevicePlan(msgspec.Struct, frozen=True):
    """A device, and how it publishes.

    Parameters
    ----------
    stream
        That it feeds.
    proxy
        By number: whose topics it publishes on.
    pace
        "busy", "steady", "bursty" or "seldom".
    gates
        How many gateways pass its messages on.
    qos
        Of its messages.
    broken, garbled
        Shares of messages with a field that cannot be read, and of ones that cannot be read at all.
    retains
        Whether the broker is to keep its messages.
    silent_from
        From when on it publishes nothing; None for never.
    """

    stream: str
    proxy: int
    pace: str
    qos: int
    on_at: float
    broken: float = 0.0
    garbled: float = 0.0
    retains: bool = False
    silent_from: float | None = None
    gates: int = 1


class BridgeUpdate(msgspec.Struct, frozen=True):
    """What a bridge says otherwise of its devices from some time on: of contacts, or of thermometers' reporting.

    Parameters
    ----------
    at
        Seconds since the beginning.
    change
        One of `UPDATES`.
    """

    at: float
    change: str


class DevicesPlan(msgspec.Struct, frozen=True):
    """All devices of a deployment.

    Parameters
    ----------
    devices
        Those that publish JSON.
    bridges
        By number of a proxy: how many thermometers its bridge has; it has one contact as well.
    updates
        Of bridges, by number of a proxy.
    merges
        Whether half messages become one tuple.
    silence_after_us
        A device that is silent for so long counts as offline.
    """

    devices: tuple[DevicePlan, ...]
    bridges: dict[int, int] = {}
    updates: dict[int, BridgeUpdate] = {}
    merges: bool = False
    silence_after_us: int = 3600 * SECOND_US

    def drivers(self, proxy: int) -> list[dict[str, Any]]:
        """Return the entries of a proxy's file of drivers."""
        found = [
            _entry(self, each, proxy)
            for each in ("meters", "clocked", "halves")
            if any(device.stream == each and device.proxy == proxy for device in self.devices)
        ]
        if proxy in self.bridges:
            found.append(
                {
                    "kind": "zigbee2mqtt",
                    "name": "bridge",
                    "base": f"{BASE}{proxy}",
                    "stream": "z2m_{model}",
                    "prefix": f"z{proxy}-",
                    "default_period": CLIMATE_DEFAULT_US,
                    "answer_within": 5 * SECOND_US,
                    "retry_after": 10 * SECOND_US,
                }
            )
        return found


def _entry(plan: DevicesPlan, stream: str, proxy: int) -> dict[str, Any]:
    fields = [
        {"name": each.name, "path": each.name, "type": each.type.value, "optional": each.name != "n" or plan.merges}
        for each in BY_STREAM[stream].fields
        if not each.fixed
    ]
    for field in fields:
        if field["name"] == "ticks":
            field |= {"kind": "counter", "modulus": MODULUS}
    entry: dict[str, Any] = {
        "kind": "json",
        "name": stream,
        "topic": f"{stream}{proxy}/{{mote}}/up",
        "stream": stream,
        "default_period": 10 * SECOND_US,
        "silence_after": plan.silence_after_us,
        "field": fields,
    }
    if stream == "meters":
        entry["property"] = [{"name": "site", "value": "cellar"}]
    if stream == "clocked":
        entry["time"] = {"path": "t", "form": "milliseconds", "max_delay": MAX_DELAY_US}
        entry |= {"topic": f"{stream}{proxy}/{{gate}}/{{mote}}/up", "same_within": SAME_WITHIN_US}
    if stream == "halves" and plan.merges:
        entry["merge_within"] = MERGED_WITHIN_US
    return entry


def drawn_devices(seed: int, proxies: int, seconds: float) -> DevicesPlan | None:
    """Return the devices of a seed's deployment; None for most, which have none."""
    dice = Random(f"devices/{seed}")
    if dice.random() >= SHARE:
        return None
    devices = tuple(_device(dice, dice.randrange(proxies), seconds) for _ in range(dice.choice((1, 2, 2, 3))))
    bridges = {dice.randrange(proxies): dice.choice((1, 2))} if dice.random() < 0.5 else {}
    return DevicesPlan(
        devices,
        bridges,
        _updates(seed, bridges, seconds),
        merges=dice.random() < 0.4,
        silence_after_us=dice.choice((20 * SECOND_US, 3600 * SECOND_US)),
    )


def _updates(seed: int, bridges: Iterable[int], seconds: float) -> dict[int, BridgeUpdate]:
    dice = Random(f"updates/{seed}")
    return {
        each: BridgeUpdate(round(dice.uniform(0.1, 0.5) * seconds, 3), dice.choice(UPDATES))
        for each in bridges
        if dice.random() < UPDATED_SHARE
    }


def _device(dice: Random, proxy: int, seconds: float) -> DevicePlan:
    dirty = dice.random() < 0.4
    stream = dice.choice(("meters", "meters", "clocked", "halves"))
    return DevicePlan(
        stream=stream,
        proxy=proxy,
        pace=dice.choice(("busy", "steady", "bursty", "bursty", "seldom")),
        qos=dice.choice((0, 1, 1)),
        on_at=round(dice.uniform(0.5, seconds / 4), 3),
        broken=0.1 if dirty else 0.0,
        garbled=0.1 if dirty else 0.0,
        retains=dice.random() < 0.2,
        silent_from=round(dice.uniform(0.4, 1.0) * seconds, 3) if dice.random() < 0.4 else None,
        gates=dice.choice((1, 2)) if stream == "clocked" else 1,
    )


def streams_of(plan: DevicesPlan) -> list[str]:
    """Return the streams that a deployment's devices feed."""
    found = {each.stream for each in plan.devices}
    return sorted(found | ({CLIMATE.name, CONTACTS.name} if plan.bridges else set()))


def queries_of(seed: int, plan: DevicesPlan, seconds: float) -> Iterator[tuple[str, str, float, float | None]]:
    """Yield queries on the streams of devices: name, text, when each is added and dropped.

    Each stream has one that stays, but for a gap now and then; others come and go beside it.
    """
    dice = Random(f"device queries/{seed}")
    for stream in streams_of(plan):
        sql = f"SELECT n{', temperature' if stream == CLIMATE.name else ''} FROM {stream}"
        begins = round(dice.uniform(1.0, 20.0), 3)
        if dice.random() < 0.3:
            ends = round(dice.uniform(0.3, 0.6) * seconds, 3)
            yield f"{stream}_a", sql, begins, ends
            yield f"{stream}_b", sql, round(ends + dice.uniform(5.0, 30.0), 3), None
        else:
            yield f"{stream}_a", sql, begins, None
        for number in range(dice.randint(0, 2)):
            added = round(dice.uniform(5.0, 0.7 * seconds), 3)
            dropped = round(added + dice.uniform(10.0, seconds / 2), 3) if dice.random() < 0.6 else None
            more = f"{sql} SAMPLE EVERY {dice.choice(SAMPLE_SECONDS)} SECONDS"
            yield f"{stream}_{number}", more, added, None if dropped is None else min(dropped, seconds)
