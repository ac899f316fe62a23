"""Recorded messages, and time for drivers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

RECORDED = Path(__file__).parent / "recorded"
S = 1_000_000
NOW = 1_700_000_000 * S  # a whole multiple of 10 s


class Session:
    """Drives one driver; both clocks run together."""

    def __init__(self, driver):
        self.driver = driver
        self.radio_us = 0

    @property
    def times(self):
        return {"radio_us": self.radio_us, "received_us": NOW + self.radio_us}

    def at(self, seconds):
        self.radio_us = round(seconds * S)
        return self

    def send(self, topic, content, **options):
        payload = content if isinstance(content, bytes) else json.dumps(content).encode()
        return self.driver.received(topic, payload, **self.times, **options)

    def run(self, mote, program, **options):
        return self.driver.run(mote, program, **self.times, **options)

    def tick(self):
        return self.driver.time_passed(**self.times)


@pytest.fixture
def recorded():
    return lambda name: json.loads((RECORDED / f"{name}.json").read_text())


@pytest.fixture
def session():
    return Session
