"""A small deployment with tokens, a relation and functions, in which owners are neighbours."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Self

from cluster.demo.parts import Children, Parts, is_ready
from cluster.errors import ClusterError
from cluster.service.access.roles import Role
from cluster.service.access.tokens import add_token, new_token
from cluster.service.client.api_client import ApiClient
from tests.neighbours.attacks import FUNCTIONS, RELATION_ROWS
from tests.neighbours.owner import Owner
from tests.neighbours.victim import MOTES, QUERIES, SECOND_US, Subscriber

if TYPE_CHECKING:
    from collections.abc import Sequence

MODULE = "tests.cluster.functions.misbehaving"
REPOSITORY = Path(__file__).parents[2]
"""Functions of the tests are not installed with the product: the cluster finds them here."""
READY_SECONDS = 120.0
CALM_SECONDS = 45.0


class Deployment:
    """Broker, cluster, proxy and motes on free ports, with the victim's queries running; a context.

    Parameters
    ----------
    folder
        Of data and logs.
    arguments
        More of the cluster's.
    """

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._folder = folder
        self._arguments: Sequence[str] = arguments
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._begin(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def is_calm(self) -> bool:
        """Wait until the owner has no query left and the victim has answers without delay; return whether it has."""
        deadline = time.monotonic() + CALM_SECONDS
        while time.monotonic() < deadline:
            try:
                self.children.check()
                self.owner.drop_all()
                if self._settled() and len(self.operator.queries()) == len(QUERIES):
                    return True
            except ClusterError:
                return False
            time.sleep(0.2)
        return False

    def _begin(self, stack: ExitStack) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        self.children = stack.enter_context(Children(self._folder / "logs"))
        self.parts = Parts.on_free_ports(self.children, self._folder)
        self.parts.start_broker()
        tokens = self._folder / "tokens.toml"
        drawn = {}
        for name, role in (("victim", Role.QUERY), ("neighbour", Role.QUERY), ("operator", Role.ADMIN)):
            drawn[name], entry = new_token(name, role)
            add_token(tokens, entry)
        self.operator = stack.enter_context(ApiClient(self.parts.api_address, token=drawn["operator"]))
        self._start_cluster(tokens)
        proxy = self.parts.start_proxy("roadside")
        self.parts.start_motes("roadside", "--motes", str(MOTES), "--period", "1s")
        self.children.wait_until(lambda: bool(self.operator.streams()), proxy, seconds=READY_SECONDS)
        self.owner = Owner(self.parts.api_address, drawn["neighbour"], self.parts.broker)
        self._declare()
        self.subscriber = stack.enter_context(Subscriber(self.parts.broker))
        with ApiClient(self.parts.api_address, token=drawn["victim"]) as victim:
            for name, sql in QUERIES.items():
                victim.add(sql, name)
        self.children.wait_until(self._settled, proxy, seconds=READY_SECONDS)

    def _start_cluster(self, tokens: Path) -> None:
        cluster = self.children.start(
            "cluster",
            [
                "cluster", "--broker", str(self.parts.broker), "--data", str(self._folder / "cluster"),
                "--api-port", self.parts.api_address.rpartition(":")[2], "--api-tokens", str(tokens),
                "--functions", MODULE, "--relation-folder", str(self._folder), *self._arguments,
            ],
            {"PYTHONPATH": str(REPOSITORY)},
        )  # fmt: skip
        self.children.wait_until(lambda: is_ready(self.operator), cluster, seconds=READY_SECONDS)

    def _declare(self) -> None:
        giant = self._folder / "giant.csv"
        lines = (f"{number},{number % 4 + 1},{number / 100}\n" for number in range(RELATION_ROWS))
        giant.write_text("k,lane,v\n" + "".join(lines), encoding="utf-8")
        self.operator.declare_relation(f"CREATE RELATION giant FROM '{giant}' REFRESH EVERY 1 DAY")
        for name in FUNCTIONS:
            returns = "TEXT" if name == "long_text" else "REAL"
            self.operator.declare_function(f"CREATE FUNCTION {name}(REAL) RETURNS {returns} AS '{MODULE}:{name}'")

    def _settled(self) -> bool:
        """Return whether all motes are answered, without delay."""
        now_us = int(time.time() * SECOND_US)
        found = self.subscriber.between(now_us - 5 * SECOND_US, now_us)
        return len([each for each in found if each.answer.query == "victim_rows"]) >= 3 * MOTES and any(
            each.answer.query == "victim_sums" for each in found
        )
