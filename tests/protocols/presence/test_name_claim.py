"""Tables of messages and verdicts about a name."""

from __future__ import annotations

import pytest

from protocols.errors import FrameError
from protocols.mqtt.messages import Message
from protocols.presence.name_claim import (
    ANSWER_SECONDS,
    SAME_ANSWER_SECONDS,
    NameWatch,
    Verdict,
    claim_of_cluster,
    claim_of_proxy,
    concerns_another,
)
from protocols.wire import topics
from protocols.wire.catalog import Presence, Status
from protocols.wire.frames import VERSION, encode

S = 1_000_000
STATUS, CLAIM = topics.proxy_status("p"), topics.proxy_claim("p")
ON, OFF = Presence.ONLINE, Presence.OFFLINE


def status(identity="other", presence=ON, *, topic=STATUS, retain=True, since=5):
    return Message(topic, encode(Status(VERSION, "p", presence, identity, since)), retain=retain)


def claimed_by(identity, since):
    return status(identity, topic=CLAIM, retain=False, since=since)


ECHO = claimed_by("own", 5)


def verdict(*events):
    """Return the verdict after messages, and after seconds that have passed since the beginning."""
    claim, now_us = claim_of_proxy(Status(VERSION, "p", ON, "own", 5)), 0
    for event in events:
        if isinstance(event, Message):
            claim.received(event, now_us)
        else:
            now_us = event * S
            claim.time_passed(now_us)
    return claim.verdict


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([], Verdict.OPEN),
        ([60], Verdict.OPEN),  # the broker is away
        ([ECHO], Verdict.FREE),
        ([status("own"), ECHO], Verdict.FREE),
        ([status(presence=OFF), ECHO], Verdict.FREE),
        ([Message(STATUS, b"", retain=True), ECHO], Verdict.FREE),
        ([Message(STATUS, b"garbage", retain=True), ECHO], Verdict.FREE),
        ([status(), ECHO], Verdict.OPEN),
        ([status(), ECHO, ANSWER_SECONDS - 1], Verdict.OPEN),
        ([status(), ECHO, ANSWER_SECONDS], Verdict.FREE),
        ([status(), ECHO, status(retain=False)], Verdict.TAKEN),
        ([status(), ECHO, status("own", retain=False)], Verdict.FREE),
        ([status(), ECHO, status(presence=OFF, retain=False)], Verdict.FREE),
        ([status(retain=False)], Verdict.TAKEN),
        ([ECHO, status(retain=False)], Verdict.FREE),  # it is ours already: the other one came second
        ([claimed_by("other", 4)], Verdict.TAKEN),
        # Nothing retains a claim but an intruder: it would keep the name from its part for ever.
        ([status("other", topic=CLAIM, since=4), ECHO], Verdict.FREE),
        ([claimed_by("other", 6), ECHO], Verdict.FREE),
        ([claimed_by("other", 5)], Verdict.TAKEN),
        ([claimed_by("zzz", 5), ECHO], Verdict.FREE),
        # A copy of the data folder has the same identity, and so has one that is started again.
        ([status("own", since=4), ECHO], Verdict.OPEN),
        ([status("own", since=4), ECHO, status("own", since=4, retain=False)], Verdict.TAKEN),
        ([status("own", since=6), ECHO, status("own", since=6, retain=False)], Verdict.TAKEN),
        ([status("own", since=4), ECHO, status("own", OFF, since=4, retain=False)], Verdict.FREE),
        ([status("own", OFF, since=4), ECHO], Verdict.FREE),
        ([status("own", since=4), ECHO, SAME_ANSWER_SECONDS], Verdict.FREE),
        ([claimed_by("own", 4)], Verdict.TAKEN),
        ([claimed_by("own", 6), ECHO], Verdict.FREE),
    ],
)
def test_verdicts(events, expected):
    assert verdict(*events) is expected


@pytest.mark.parametrize(("since", "again"), [(6, True), (4, False)])
def test_a_claim_is_repeated_for_another_that_began_later_and_may_not_have_seen_it(since, again):
    claim = claim_of_proxy(Status(VERSION, "p", ON, "own", 5))
    assert claim.received(claimed_by("other", since), 0) is again
    assert not claim.received(ECHO, 0)
    assert not claim.received(Message(CLAIM, b"garbage"), 0)


def test_of_two_that_claim_together_just_one_gets_the_name():
    claims = [claim_of_cluster(Status(VERSION, "c", ON, identity, 5)) for identity in ("a", "b")]
    for sender in claims:
        for claim in claims:
            claim.received(sender.message, 0)
    assert [each.verdict for each in claims] == [Verdict.FREE, Verdict.TAKEN]


def test_a_part_answers_claims_of_others_only():
    own = Status(VERSION, "p", ON, "own", 5)
    assert concerns_another(claimed_by("other", 5).payload, own)
    assert concerns_another(claimed_by("own", 6).payload, own)
    assert not concerns_another(ECHO.payload, own)
    with pytest.raises(FrameError):
        concerns_another(b"garbage", own)


def seen(*statuses):
    """Return whether the name is shared after each status, of which each comes 10 s after the one before.

    A process publishes its own on each connection.
    """
    watch = NameWatch(Status(VERSION, "p", ON, "own", 5))
    found = []
    for place, (presence, identity, since) in enumerate(statuses):
        if (identity, since) == ("own", 5):
            watch.connected()
        found.append(watch.seen(Status(VERSION, "p", presence, identity, since), 10 * S * place))
    return found


OWN, COPY, BEFORE = (ON, "own", 5), (OFF, "own", 6), (OFF, "own", 4)


@pytest.mark.parametrize(
    ("statuses", "shared"),
    [
        ([BEFORE, OWN, OWN], False),
        ([BEFORE, BEFORE, OWN], False),
        ([OWN, COPY, OWN], False),  # as a message that was delayed
        ([OWN, COPY, OWN, COPY, OWN], False),
        ([OWN, COPY, OWN, COPY, OWN, COPY], True),
        ([OWN, COPY, COPY, COPY], False),  # forged: the connection has lasted
        ([OWN, OWN, COPY, COPY, COPY], False),
        ([OWN, OWN, COPY, *[OWN] * 6, COPY], False),
        ([OWN, OWN, (ON, "other", 6), OWN, (ON, "other", 6)], False),
    ],
)
def test_a_second_process_of_the_same_identity_shows_in_the_statuses_of_the_name(statuses, shared):
    *before, last = seen(*statuses)
    assert last is shared
    assert not any(before)
