"""A Zigbee2MQTT bridge with thermometers, whose reporting a proxy configures, and a contact that reports by itself.

It may be updated: then it says otherwise what its devices have, and whose reporting can be configured.

Facts as in the Zigbee2MQTT documentation ("MQTT topics and messages"): retained `bridge/devices` and `bridge/info`, a
response for each request with its transaction, and the state of each device that is cached published after a start.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from protocols.mqtt.link import MqttLink, Subscription
from tests.simulation.device_log import Sent
from tests.simulation.device_plans import BASE, CLIMATE, CONTACTS, NEW_COLUMN, UPDATED_SECONDS
from tests.simulation.devices import Publishing

if TYPE_CHECKING:
    from random import Random

    from protocols.mqtt.messages import Message
    from tests.simulation.device_plans import BridgeUpdate

OWN_SECONDS = 25
"""A thermometer whose reporting no one has configured reports this often."""
FAILED, UNANSWERED = 0.15, 0.1
"""Shares of requests that a device, which sleeps, does not carry out, and that the bridge does not answer."""
REQUESTS = "bridge/request/device/configure_reporting"
RESPONSES = REQUESTS.replace("request", "response", 1)


@dataclass
class Device:
    """A device behind the bridge.

    Parameters
    ----------
    name, model
        As the bridge lists it.
    state
        What was published last.
    seconds
        Between two reports, by attribute, as confirmed.
    """

    name: str
    model: str
    state: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, int] = field(default_factory=dict)
    number: int = 0


class Bridge(Publishing):
    """The bridge.

    Parameters
    ----------
    number
        Of its proxy.
    thermometers
        How many.
    update
        Of the bridge; None for none.
    dice
        Draws when, and what.
    """

    def __init__(self, *given: Any, number: int, thermometers: int, update: BridgeUpdate | None, dice: Random) -> None:
        super().__init__(*given)
        self.base = f"{BASE}{number}"
        self.prefix = f"z{number}-"
        self.update = update
        self.devices = [Device(f"th{place}", "TH1") for place in range(thermometers)] + [Device("c0", "C1")]
        self._dice = dice
        self._changed: dict[str, asyncio.Event] = {}

    def start(self) -> None:
        """Begin its process."""
        process = self.host.start()
        self.link = process.run(
            lambda: MqttLink(
                self.broker,
                client_id=self.host.name,
                subscriptions=[Subscription(f"{self.base}/bridge/request/#")],
                on_connect=self._announce,
            )
        )
        self.loop.spawn(process, self.link.run(self._receive), "link")
        for device in self.devices:
            self._changed[device.name] = asyncio.Event()
            self.loop.spawn(process, self._report(device), device.name)
        if not self.has_passed(0.0):
            self.loop.spawn(process, self._announce_update(), "update")

    def restore_power(self) -> None:
        """Switch it on again."""
        self.network.power_returned(self.host)
        self.start()

    def has_passed(self, seconds: float) -> bool:
        """Return whether an update is so long ago, or there is none."""
        return self.update is None or self.seconds >= self.update.at + seconds

    def changed(self, change: str) -> bool:
        """Return whether an update has changed this."""
        return self.update is not None and self.update.change == change and self.has_passed(0.0)

    @property
    def configures(self) -> bool:
        """Whether the reporting of thermometers can be configured."""
        if self.update is not None and self.update.change == "configures from now on":
            return self.has_passed(0.0)
        return not self.changed("configures no more")

    async def _announce_update(self) -> None:
        assert self.update is not None
        await asyncio.sleep(self.update.at - self.seconds)
        if self.update.change == "configures no more":
            for device in self.devices:
                device.seconds.clear()
        assert self.link is not None
        if self.link.connected.is_set():
            await self._announce()

    async def _announce(self) -> None:
        version = "1.41.0" if self.update is not None and self.has_passed(0.0) else "1.40.0"
        info = {"version": version, "coordinator": {"type": "zStack"}, "config": {}}
        self.publish(f"{self.base}/bridge/info", json.dumps(info).encode(), None, qos=1, retain=True)
        listed = [{"type": "Coordinator", "ieee_address": "0x0", "friendly_name": "Coordinator"}]
        listed += [self._entry(place, each) for place, each in enumerate(self.devices)]
        self.publish(f"{self.base}/bridge/devices", json.dumps(listed).encode(), None, qos=1, retain=True)

    async def _receive(self, message: Message) -> None:
        if message.topic != f"{self.base}/{REQUESTS}":
            return
        request = json.loads(message.payload)
        device = next((each for place, each in enumerate(self.devices) if _address(place) == request["id"]), None)
        await asyncio.sleep(self._dice.uniform(0.02, 1.0))
        drawn = self._dice.random()
        if device is None or drawn < UNANSWERED or not self.configures:
            return
        answer: dict[str, Any] = {"data": {}, "status": "ok", "transaction": request["transaction"]}
        if drawn < UNANSWERED + FAILED:
            answer = answer | {"status": "error", "error": "timeout"}
        else:
            device.seconds[request["attribute"] + request["cluster"]] = request["maximum_report_interval"]
            self._changed[device.name].set()
        self.publish(f"{self.base}/{RESPONSES}", json.dumps(answer).encode(), None, qos=1)

    async def _report(self, device: Device) -> None:
        """Publish states: as confirmed, or by the device's own rules."""
        await asyncio.sleep(self._dice.uniform(0.5, 3.0))
        if device.state:
            self._publish(device)
        while True:
            changed = self._changed[device.name]
            changed.clear()
            if device.model == "C1":
                await asyncio.sleep(self._dice.choice((0.2, self._dice.uniform(3.0, 40.0))))
            else:
                periodic = min(device.seconds.values(), default=OWN_SECONDS)
                own = self._dice.uniform(5.0, 60.0)
                try:
                    async with asyncio.timeout(min(periodic, own)):
                        await changed.wait()
                except TimeoutError:
                    pass
                else:
                    continue
            device.number += 1
            self._sense(device)
            self._publish(device)

    def _sense(self, device: Device) -> None:
        if device.model == "C1":
            device.state = {"contact": device.number % 2 == 0, "n": device.number}
            if self.changed("adds column"):
                device.state[NEW_COLUMN.name] = device.number % 3 == 0
            return
        number = device.number
        device.state = {
            "temperature": 20.0 + number % 7,
            "humidity": 40.0 + number % 9,
            "n": number,
            "tamper": self._dice.random() < 0.1,
        }

    def _publish(self, device: Device) -> None:
        contact = device.model == "C1"
        schema, number = CONTACTS if contact else CLIMATE, device.number
        values = {each.name: device.state.get(each.name) for each in schema.fields} | device.state
        certain = not self.has_passed(0.0) or self.has_passed(UPDATED_SECONDS)
        configured = not contact and self.configures
        name = self.prefix + device.name
        sent = Sent(schema.name, name, number, values, configured=configured, certain=certain)
        self.publish(f"{self.base}/{device.name}", json.dumps(device.state).encode(), sent, qos=0)

    def _entry(self, place: int, device: Device) -> dict[str, Any]:
        served = ["genBasic"]
        exposes: list[dict[str, Any]]
        if device.model == "C1":
            exposes = [_binary("contact"), _number("n", "")]
            if self.changed("adds column"):
                exposes.append(_binary(NEW_COLUMN.name))
        else:
            exposes = [_number("temperature", "°C"), _number("humidity", "%"), _number("n", ""), _binary("tamper")]
            if self.configures:
                served += ["msTemperatureMeasurement", "msRelativeHumidity"]
        endpoint = {"clusters": {"input": served, "output": []}, "bindings": [], "configured_reportings": []}
        return {
            "ieee_address": _address(place),
            "friendly_name": device.name,
            "type": "EndDevice",
            "supported": True,
            "disabled": False,
            "power_source": "Battery",
            "definition": {"model": device.model, "vendor": "Simulated", "exposes": exposes},
            "endpoints": {"1": endpoint},
        }


def _address(place: int) -> str:
    return f"0x00158d00018255{place:02x}"


def _number(name: str, unit: str) -> dict[str, Any]:
    return {"type": "numeric", "name": name, "property": name, "access": 1, **({"unit": unit} if unit else {})}


def _binary(name: str) -> dict[str, Any]:
    return {"type": "binary", "name": name, "property": name, "access": 1, "value_on": True, "value_off": False}
