"""Garbage on all topics of a proxy without keys, and damaged copies of real frames: after it, samples are stored."""

from __future__ import annotations

from random import Random

from protocols.wire import topics
from protocols.wire.frames import encode
from protocols.wire.packets import SendAnnouncement, decode_control
from protocols.wire.programs import SamplingProgram, program_number
from proxy.motes.mote_controls import MOST_WAIT_US
from tests.examples import seeds
from tests.fuzz.drawing import damaged
from tests.fuzz.proxy_world import BOUNDED, NAME, SECOND_US, ProxyWorld

SPEED = SamplingProgram(("speed",), 10 * SECOND_US)
NUMBER = program_number(SPEED)
MOTES = ("m1", "m2", "m3")
PROXY = f"fjord/v1/proxies/{NAME}"
TOPICS = (
    *(f"{PROXY}/{each}" for each in ("acks", "claim", "status", "motes/m1", "batches", "backlog/1-1")),
    *("fjord/v1/proxies/q/status", "fjord/v1/proxies/q/motes/m1", "fjord/v1/clusters/c1/status"),
    *("fjord/v1/demands/traffic", "fjord/v1/demands/traffic/3", "fjord/v1/results/q", "fjord/v1/else", ""),
)
ROUNDS = 60


class World(ProxyWorld):
    """A proxy with motes that sample, listen, and announce themselves when they are asked to."""

    def __init__(self, frames, dice):
        super().__init__(dice, clock=BOUNDED)
        self.frames = frames
        self.sequence = -1
        self.asked = set()
        self.receive(topics.demand("traffic"), encode(frames.demand(("a", ["speed"], None))))
        self.merge()
        for mote in MOTES:
            self.announce(mote)

    async def publish(self, message):
        control = decode_control(message.payload)
        if SendAnnouncement() in control.instructions:
            self.asked.add(control.mote)

    def announce(self, mote):
        self.receive(topics.announcement(NAME, mote), encode(self.frames.announcement(mote)))

    def sent(self):
        """Let ten seconds pass; return what the motes send then, by topic."""
        self.pass_time(10 * SECOND_US)
        self.sequence += 1
        return {
            topics.packet(NAME, mote): encode(
                self.frames.packet(
                    self.sequence, (self.now_us, 1.0), mote=mote, clock=self.now_us, listen=9 * SECOND_US,
                    program=NUMBER,
                )
            )
            for mote in MOTES
        }  # fmt: skip

    def answer(self):
        asked, self.asked = self.asked, set()
        for mote in asked:
            self.announce(mote)

    def stored(self):
        """The motes of which samples are in the batches that are due."""
        self.cut()
        cut, self._cut = self._cut, []
        return {tuple_.position.mote for batch in cut for tuple_ in batch.tuples if batch.schema.name == "traffic"}


@seeds(60)
def test_motes_are_stored_again_after_garbage(frames, seed):
    dice = Random(seed)
    world = World(frames, dice)
    for _ in range(5):
        for topic, payload in world.sent().items():
            world.receive(topic, payload)
    assert world.stored() == set(MOTES)
    for _ in range(ROUNDS):
        for topic, payload in world.sent().items():
            mote = topics.parse(topic).names[1]
            for _ in range(dice.randrange(4)):
                real = dice.choice((payload, encode(frames.announcement(mote))))
                onto = dice.choice((topic, topics.announcement(NAME, mote), topics.packet(NAME, "m1")))
                world.receive(onto, damaged(real, dice), retain=dice.random() < 0.2)
            world.receive(topic, payload)
        for topic in TOPICS:
            world.receive(topic, dice.randbytes(dice.randrange(40)), retain=dice.random() < 0.5)
        world.answer()
        world.stored()
    for _ in range(MOST_WAIT_US // (10 * SECOND_US) + 20):
        for topic, payload in world.sent().items():
            world.receive(topic, payload)
        world.answer()
    world.stored()
    for _ in range(5):
        for topic, payload in world.sent().items():
            world.receive(topic, payload)
    assert world.stored() == set(MOTES)
