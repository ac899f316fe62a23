"""Which connections with tokens give way, without sockets."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import pytest

from cluster.service.access.admission import Refusal
from cluster.service.access.roles import Role
from cluster.service.access.tokens import Caller
from cluster.service.http.connections import MOST_CONNECTIONS, ConnectionBounds, Doing, Held, place_that_yields

IDLE, SLOW, WORK = Doing.NOTHING, Doing.CLIENT, Doing.WORK
READ, QUERY, ADMIN = (Caller(role.value, role) for role in Role)


def held(words: str) -> list[Held]:
    """Return connections: each a token, an admin's in capitals, and what it does."""
    doing = {"-": IDLE, "<": SLOW, "*": WORK}
    return [Held(word[0], word[0].isupper(), doing[word[1]]) for word in words.split()]


@pytest.mark.parametrize(
    ("words", "place"),
    [
        ("a-", 0),
        ("b- a- a- b- a-", 1),  # of the token with most, the longest idle
        ("a* a* a- b-", 2),
        ("a* a< a* a< b-", 1),  # none is idle: the one that has waited longest for its client
        ("a* a* a* b-", 2),  # the youngest of those at work
        ("a- b*", 0),  # of equal ones, the one that stands first
        ("b* a-", 0),
        ("A- b*", 1),  # an admin's stays
        ("A- A- b*", 0),  # unless it takes places from itself
        ("A- B-", 0),
        ("b* A- A- b*", 3),
    ],
)
def test_which_connection_gives_way(words: str, place: int) -> None:
    assert place_that_yields(held(words)) == place


@dataclass(eq=False)
class Connection:
    """One without a socket."""

    doing: Doing = IDLE
    gave_way: bool = False

    def give_way(self) -> None:
        self.gave_way = True


@dataclass
class Api:
    """The bounds of an API, and what they count."""

    most: int = MOST_CONNECTIONS
    counted: Counter[Refusal] = field(default_factory=Counter)
    bounds: ConnectionBounds = field(init=False)

    def __post_init__(self) -> None:
        self.bounds = ConnectionBounds(self._count, most_connections=self.most, clock=lambda: 0.0)

    def _count(self, refusal: Refusal) -> None:
        self.counted[refusal] += 1

    def connect(self, address: str = "192.0.2.1", doing: Doing = IDLE) -> Connection:
        found = Connection(doing)
        assert self.bounds.begin(found, address)
        return found

    def known(self, caller: Caller, count: int, doing: Doing = IDLE) -> list[Connection]:
        found = []
        for _ in range(count):
            found.append(self.connect(doing=doing))
            assert self.bounds.recognise(found[-1], caller)
        return found

    @property
    def places(self) -> Counter[str]:
        return Counter(each.name for each in self.bounds.known.values())


@pytest.mark.parametrize("doing", Doing)
@pytest.mark.parametrize("caller", [QUERY, ADMIN])
def test_others_get_places_whatever_one_token_holds(doing: Doing, caller: Caller) -> None:
    api = Api()
    greedy = api.known(READ, 192, doing)
    assert api.counted == {}
    own = api.known(caller, 96)
    assert not any(each.gave_way for each in own)
    assert sum(each.gave_way for each in greedy) == 96
    assert api.places == {"read": 96, caller.name: 96}
    assert api.counted == {Refusal.SHARE: 96}


def test_a_client_without_a_token_ends_no_connection_with_one() -> None:
    api = Api()
    known = api.known(READ, 192)
    nameless = [api.connect("192.0.2.66") for _ in range(1_000)]
    assert not any(each.gave_way for each in known)
    assert sum(not each.gave_way for each in nameless) == 64
    assert api.counted == {Refusal.CONNECTIONS: 1_000 - 64}


def test_a_connection_of_many_tokens_counts_for_the_last_one() -> None:
    """As that of a proxy in front of the API, which gives it the requests of all its clients."""
    api = Api(8)
    (one, *_) = api.known(READ, 6)
    assert api.bounds.recognise(one, ADMIN)
    assert api.places == {"read": 5, "admin": 1}
    assert api.counted == {}
    api.bounds.end(one)
    assert api.places == {"read": 5}
    assert api.bounds.recognise(one, READ), "it has ended, and takes no place"
    assert api.places == {"read": 5}


def test_a_token_with_too_much_work_is_refused_more_and_keeps_what_it_has() -> None:
    api = Api(8)
    known = api.known(READ, 6, WORK)
    more = api.connect(doing=WORK)
    assert not api.bounds.recognise(more, READ)
    assert not any(each.gave_way for each in (*known, more))
    assert (api.places, list(api.bounds.unknown)) == ({"read": 6}, [more])
    known[3].doing = IDLE
    assert api.bounds.recognise(more, READ)
    assert [each.gave_way for each in known] == [False, False, False, True, False, False]


def test_that_a_token_gives_way_is_logged_once_a_minute(capfd: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    bounds = ConnectionBounds(lambda _: None, most_connections=8, clock=lambda: now[0])
    for _ in range(6):
        for _ in range(10):
            connection = Connection()
            bounds.begin(connection, None)
            bounds.recognise(connection, READ)
        now[0] += 20.0
    lines = [line for line in capfd.readouterr().out.splitlines() if "gives way" in line]
    assert len(lines) == 2
    assert "connections=7" in lines[0]
    assert "times=1" in lines[0]
    assert "token=read" in lines[0]
    assert "times=24" in lines[1]
