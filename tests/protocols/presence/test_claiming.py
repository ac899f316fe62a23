"""Two of a name at a real broker: the one that comes second is refused, and the first goes on undisturbed."""

from __future__ import annotations

import asyncio
import contextlib
import time

import pytest

from protocols.mqtt.link import BrokerAddress, Message, MqttLink, Subscription
from protocols.presence import name_claim
from protocols.presence.claiming import NameTakenError, claimed
from protocols.presence.name_claim import NameClaim, Verdict, claim_of_proxy, concerns_another
from protocols.wire import topics
from protocols.wire.catalog import Presence, Status
from protocols.wire.frames import VERSION, encode


def own(identity, presence=Presence.ONLINE):
    return Status(VERSION, "p", presence, identity, time.time_ns() // 1_000)


def name_of(address, identity, stop=lambda: None):
    def make_link(client_id, subscriptions, births):
        return MqttLink(address, client_id=client_id, subscriptions=subscriptions, births=births)

    return claimed(claim_of_proxy(own(identity)), "proxy", make_link, stop=stop)


@contextlib.asynccontextmanager
async def holder(address, identity):
    """A part that has the name, and answers."""
    mine = own(identity)
    status = Message(topics.proxy_status("p"), encode(mine), retain=True)

    async def answer(message):
        if concerns_another(message.payload, mine):
            await link.publish(status)

    link = MqttLink(
        address,
        client_id=f"holder-{identity}",
        subscriptions=[Subscription(topics.proxy_claim("p"))],
        births=[status],
        will=Message(topics.proxy_status("p"), encode(own(identity, Presence.OFFLINE)), retain=True),
    )
    running = asyncio.create_task(link.run(answer))
    await link.connected.wait()
    yield link
    running.cancel()


async def test_a_name_that_no_part_has_or_had_is_free_without_waiting_for_an_answer(broker, monkeypatch):
    monkeypatch.setattr(name_claim, "ANSWER_SECONDS", 86_400.0)
    for identity in ("a", "b"):
        async with name_of(broker, identity):
            pass


async def test_second_is_refused_while_the_first_runs_and_gets_the_name_afterwards(broker):
    async with holder(broker, "first") as link:
        with pytest.raises(NameTakenError, match="another proxy named 'p' runs at this broker, with identity first"):
            async with name_of(broker, "second"):
                pytest.fail("it must not begin")
        with pytest.raises(NameTakenError, match="one of the two is a copy of the other"):
            async with name_of(broker, "first"):
                pytest.fail("it must not begin")
        assert link.connects_total == 1
    async with name_of(broker, "second"):
        pass


async def test_a_status_without_a_part_that_answers_is_overcome_after_a_while(broker, monkeypatch):
    undecided, time_passed = [], NameClaim.time_passed

    def counted(claim, now_us):
        time_passed(claim, now_us)
        undecided.append(claim.echoed and claim.verdict is Verdict.OPEN)

    monkeypatch.setattr(NameClaim, "time_passed", counted)
    link = MqttLink(
        broker, client_id="dead", births=[Message(topics.proxy_status("p"), encode(own("dead")), retain=True)]
    )
    running = asyncio.create_task(link.run_in_bursts(lambda _: asyncio.sleep(0)))
    await link.connected.wait()
    running.cancel()
    async with name_of(broker, "new"):
        assert sum(undecided) > 1, "another might have answered until then"


async def test_without_a_broker_a_part_begins_and_learns_later_that_it_came_second():
    from proxy.broker import running_broker

    stopped = asyncio.Event()
    async with running_broker() as address:
        port = address.port

    async def second():
        async with name_of(BrokerAddress(port=port), "second", stopped.set):
            began.set()
            await stopped.wait()

    began, running = asyncio.Event(), asyncio.create_task(second())
    await asyncio.wait_for(began.wait(), 10)
    async with running_broker(port=port) as address, holder(address, "first"):
        with pytest.raises(NameTakenError):
            await asyncio.wait_for(running, 60)
