"""The owner that attacks: what it sends with its token, and what it is answered."""

from __future__ import annotations

import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cluster.errors import ClusterError
from cluster.service.client.api_client import ApiClient, ApiUnreachableError, RefusedError
from tests.neighbours.attacks import Attack, Way
from tests.neighbours.victim import QUERIES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from protocols.mqtt.link import BrokerAddress

CLIENTS = 8
TAILS = 40
REFUSED_SECONDS = 4.0
"""For how long a victim is watched after statements that were all refused."""
_KEPT_UP = (Way.CHURN, Way.EXPLAIN, Way.QUESTIONS)
_KEPT_REASONS = 20


@dataclass(slots=True)
class Answered:
    """What an owner was answered.

    Parameters
    ----------
    accepted, refused
        How many requests were.
    reasons
        Why some were refused, the first of each kind.
    queries
        The names of the queries that were started.
    begun
        When the first request was accepted, in seconds since 1970; None if none was.
    """

    accepted: int = 0
    refused: int = 0
    reasons: list[str] = field(default_factory=list)
    queries: list[str] = field(default_factory=list)
    begun: float | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def accept(self, *names: str) -> None:
        """Note a request that was accepted, and the queries that it has started."""
        with self._lock:
            self.accepted += 1
            self.queries += names
            self.begun = self.begun or time.time()

    def refuse(self, error: ClusterError) -> None:
        """Note a request that was refused."""
        with self._lock:
            self.refused += 1
            if error.message not in self.reasons and len(self.reasons) < _KEPT_REASONS:
                self.reasons.append(error.message)


class Owner:
    """An owner with a token.

    Parameters
    ----------
    address, token
        Of the API.
    broker
        Where results are published.
    """

    def __init__(self, address: str, token: str, broker: BrokerAddress) -> None:
        self._address = address
        self._token = token
        self._broker = broker
        self._attacks = 0

    def attack(self, attack: Attack) -> Answered:
        """Carry out an attack, and keep it up for a while once its statements are answered; its queries run on."""
        answered = Answered()
        self._attacks += 1
        with self._client() as api:
            until = time.monotonic() + attack.seconds
            match attack.way:
                case Way.AT_ONCE:
                    with ThreadPoolExecutor(CLIENTS) as pool:
                        for share in range(CLIENTS):
                            pool.submit(self._add_share, attack, share, answered)
                case Way.TOGETHER:
                    for text in attack.statements:
                        with _answers(answered):
                            answered.accept(*(each["name"] for each in api.add_together(text)))
                case Way.CHURN:
                    self._churn(api, attack, answered, until)
                case Way.EXPLAIN:
                    self._again(attack, answered, until, lambda each, text: each.explain(text))
                case Way.QUESTIONS:
                    self._again(attack, answered, until, lambda each, text: each.sensors(sql=text))
                case _:
                    self._add(api, attack, answered)
        if attack.way not in _KEPT_UP:
            until = time.monotonic() + (attack.seconds if answered.queries else REFUSED_SECONDS)
        if attack.way is Way.DOWNLOAD and answered.queries:
            name = answered.queries[0]
            self._again(attack, answered, until, lambda each, _: each.results(name, limit=10_000))
        with ExitStack() as stack:
            if attack.way is Way.UNREAD:
                for number in range(TAILS):
                    stack.enter_context(_unread(self._broker, number))
            time.sleep(max(0.0, until - time.monotonic()))
        return answered

    def drop_all(self) -> None:
        """Drop all queries of the owner."""
        with self._client() as api, suppress(ApiUnreachableError):
            for each in api.queries():
                if each["name"] not in QUERIES:
                    with suppress(RefusedError):
                        api.drop(each["name"])

    def _name(self, place: int) -> str:
        """Return a name that no earlier attack had, so that errors are of one attack only."""
        return f"attack{self._attacks}_{place}"

    def _client(self) -> ApiClient:
        return ApiClient(self._address, token=self._token)

    def _add(self, api: ApiClient, attack: Attack, answered: Answered, places: range | None = None) -> None:
        for place in places or range(len(attack.statements)):
            with _answers(answered):
                answered.accept(api.add(attack.statements[place], self._name(place))["name"])

    def _add_share(self, attack: Attack, share: int, answered: Answered) -> None:
        with self._client() as api:
            self._add(api, attack, answered, range(share, len(attack.statements), CLIENTS))

    def _churn(self, api: ApiClient, attack: Attack, answered: Answered, until: float) -> None:
        while time.monotonic() < until:
            for place, text in enumerate(attack.statements):
                with _answers(answered):
                    api.add(text, self._name(place))
                    answered.accept()
            for place in range(len(attack.statements)):
                with suppress(RefusedError):
                    api.drop(self._name(place))

    def _again(self, attack: Attack, answered: Answered, until: float, ask: Callable[[ApiClient, str], object]) -> None:
        """Let all clients ask the same again and again."""

        def one() -> None:
            with self._client() as api:
                while time.monotonic() < until:
                    with _answers(answered):
                        ask(api, attack.statements[0])
                        answered.accept()

        with ThreadPoolExecutor(CLIENTS) as pool:
            for each in [pool.submit(one) for _ in range(CLIENTS)]:
                each.result()


@contextmanager
def _answers(answered: Answered) -> Iterator[None]:
    """Note an answer that is an error."""
    try:
        yield
    except (RefusedError, ApiUnreachableError) as error:
        answered.refuse(error)


@contextmanager
def _unread(broker: BrokerAddress, number: int) -> Iterator[None]:
    """Subscribe to all results, and never read any."""
    name, topic = f"unread{number}".encode(), b"fjord/v1/results/#"
    hello = b"\x00\x04MQTT\x04\x02\x00\x00" + len(name).to_bytes(2, "big") + name
    wanted = b"\x00\x01" + len(topic).to_bytes(2, "big") + topic + b"\x00"
    with socket.create_connection((broker.host, broker.port), timeout=10) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(b"\x10" + bytes([len(hello)]) + hello + b"\x82" + bytes([len(wanted)]) + wanted)
        yield
