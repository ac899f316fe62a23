"""A device of another maker, with another MQTT client: `python -m tests.faults.device PORT TOPIC LOG`.

It publishes numbers as JSON with a quality of service of 1, in bursts and with pauses, each number once. Its log has a
line for each number that the broker has acknowledged, and when; and one with a question mark for each that was not when
a connection was lost: MQTT sends it again, and the broker may take it for another message.
"""

from __future__ import annotations

import json
import random
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from paho.mqtt import client as paho

QUIET = 0.35
"""Share of pauses that are long."""


class Acknowledged(NamedTuple):
    """A number that the broker has: when, in seconds since 1970, and whether it may have it twice."""

    number: int
    at: float
    perhaps_twice: bool


class Device:
    """The device.

    Parameters
    ----------
    log
        Where it notes what the broker has.
    """

    def __init__(self, log: TextIO) -> None:
        self._log = log
        self._open: dict[int, int] = {}
        self._client = paho.Client(
            paho.CallbackAPIVersion.VERSION2, f"probe-{random.getrandbits(32):08x}", clean_session=False
        )
        self._client.reconnect_delay_set(1, 2)
        self._client.on_publish = self._published
        self._client.on_disconnect = self._disconnected

    def run(self, port: int, topic: str) -> None:
        """Publish until it is killed."""
        dice, number = random.Random(), 0
        while True:
            with suppress(OSError):
                self._client.connect("127.0.0.1", port, keepalive=5)
                break
            time.sleep(0.5)
        self._client.loop_start()
        while True:
            for _ in range(dice.randint(1, 4)):
                number = max(number + 1, time.time_ns() // 1_000_000)
                sent = self._client.publish(topic, json.dumps({"n": number}), qos=1)
                self._open[sent.mid] = number
                time.sleep(dice.uniform(0.0, 0.05))
            time.sleep(dice.uniform(0.3, 0.9) if dice.random() < QUIET else dice.uniform(0.02, 0.2))

    def _published(self, client: Any, data: Any, mid: int, *_: Any) -> None:
        del client, data
        for _ in range(100):  # the acknowledgement may come before the number is noted
            if mid in self._open:
                break
            time.sleep(0.001)
        self._note(f"{self._open.pop(mid)} {time.time()}")

    def _disconnected(self, *_: Any) -> None:
        for number in list(self._open.values()):
            self._note(f"?{number} {time.time()}")

    def _note(self, line: str) -> None:
        self._log.write(line + "\n")
        self._log.flush()


def acknowledged(log: Path) -> list[Acknowledged]:
    """Return what a log says that the broker has."""
    twice: set[int] = set()
    found: list[tuple[int, float]] = []
    *lines, _ = log.read_text(encoding="utf-8").split("\n")  # the last line of a process that was killed
    for line in lines:
        number, at = line.split(" ")
        if number.startswith("?"):
            twice.add(int(number[1:]))
        else:
            found.append((int(number), float(at)))
    return [Acknowledged(number, at, number in twice) for number, at in found]


if __name__ == "__main__":
    with Path(sys.argv[3]).open("a", encoding="utf-8") as log:
        Device(log).run(int(sys.argv[1]), sys.argv[2])
