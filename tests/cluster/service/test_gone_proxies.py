"""Streams and proxies that are gone: the stream waits, unless its author lets it go on; and what it waits for is shown.

proxy north   rows up to 10 s, then away ............................ back, with a spool
proxy south   rows ...............................................................
stream        10 s .......... waits (by default) .......... or goes on after `gone_after`: late rows are counted
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import httpx
import pytest
from typer.testing import CliRunner

from cluster.ingest.service import Ingest
from cluster.service.catalog.stream_command import stream
from cluster.service.catalog.stream_settings import GoneAfter, GoneProxies
from cluster.service.client.command import wait_text
from protocols.mqtt.link import Message
from protocols.wire import topics
from protocols.wire.batches import Batch, encode_batch, make_columns
from protocols.wire.catalog import Presence, ProxyWaits, Status, StreamWait
from protocols.wire.frames import VERSION, encode
from tests.cluster.service.conftest import TRAFFIC, FakeLink, application

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.cluster.service.conftest import Service

S = 1_000_000
ECHO = Message(topics.cluster_claim("c"), b"echo")


class Deployment:
    """An ingest, two proxies, and a broker: the clock is the test's, and a look takes a second."""

    def __init__(self, folder: Path, gone_after: float | None) -> None:
        self.now = 0.0
        self.link = FakeLink()
        self.link.connected.set()
        self.answers = True
        self.late: list[str] = []
        self.sequences = {"north": 0, "south": 0}
        self.ingest = Ingest(
            folder / "streams",
            quarantine=lambda kind, _, origin, __: self.late.append(f"{kind} {origin}"),
            gone_after=lambda _: gone_after,
            link=self.link,
            echo=ECHO,
            clock=lambda: self.now,
            monotonic=lambda: self.now,
        )
        self.ingest.declare(TRAFFIC)
        self.writer = self.ingest.writers["traffic"]
        for proxy in ("north", "south"):
            self.status(proxy, Presence.ONLINE)

    def status(self, proxy: str, presence: Presence) -> None:
        frame = Status(VERSION, proxy, presence, "e", 0)
        self.receive(topics.proxy_status(proxy), encode(frame), retain=True)

    def receive(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        self.ingest.handle(Message(topic, payload, retain=retain), topics.parse(topic))

    async def send(self, proxy: str, *seconds: int, up_to: int) -> None:
        """Send rows stamped at seconds, as the proxy's next batch, and commit."""
        self.sequences[proxy] += 1
        stamps = [each * S for each in seconds]
        columns = make_columns(
            TRAFFIC, stamps, ["m"] * len(stamps), [True] * len(stamps), {"speed": [1.0] * len(stamps)}
        )
        frame = Batch(1, proxy, "e", "traffic", self.sequences[proxy], up_to * S, True, len(stamps), columns)
        self.receive(topics.batches(proxy), encode_batch(frame))
        await self.writer.commit()

    def tick(self, seconds: int) -> None:
        """Let time pass as `Ingest.run` does."""
        for _ in range(seconds):
            self.now += 1
            self.ingest.time_passed()
            if self.ingest.attention.echo_due(round(self.now * S)):
                self.ingest.attention.echo_sent(round(self.now * S))
                if self.answers and self.link.connected.is_set():
                    self.ingest.attention.echoed()

    async def begin(self) -> Self:
        await self.send("north", up_to=10)
        await self.send("south", 11, up_to=12)
        self.tick(5)
        return self

    @property
    def up_to(self) -> float:
        return (self.writer.admission.watermark_us or 0) / S

    @property
    def rows(self) -> int:
        return self.writer.admission.counters.rows


def gone(deployment: Deployment) -> None:
    deployment.status("north", Presence.OFFLINE)


async def test_a_stream_waits_for_a_proxy_that_is_gone_so_that_its_spool_is_not_late(tmp_path: Path) -> None:
    deployment = await Deployment(tmp_path, None).begin()
    gone(deployment)
    for second in range(11, 500, 10):
        deployment.tick(1000)
        await deployment.send("south", second, up_to=second)
    assert deployment.up_to == 10
    await deployment.send("north", 12, 400, up_to=500)
    assert (deployment.late, deployment.rows, deployment.up_to) == ([], 3 + 49, 491)


async def test_an_author_lets_a_stream_go_on_and_late_rows_are_counted_by_proxy(tmp_path: Path) -> None:
    deployment = await Deployment(tmp_path, 60.0).begin()
    gone(deployment)
    await deployment.send("south", 50, up_to=60)
    deployment.tick(55)
    assert deployment.up_to == 10
    deployment.tick(10)
    assert deployment.up_to == 60
    await deployment.writer.commit()
    assert deployment.writer.table.position().watermark_us == 60 * S
    await deployment.send("north", 12, 70, up_to=80)
    assert deployment.writer.admission.late_of == {"north": 1}
    assert deployment.late == ["late sample north/traffic"]


@pytest.mark.parametrize("fault", ["stopped", "broker outage", "cut that is not noticed", "commit in doubt"])
async def test_nothing_is_lost_if_the_cluster_itself_was_away_for_longer_than_the_limit(
    tmp_path: Path, fault: str
) -> None:
    deployment = await Deployment(tmp_path, 60.0).begin()
    await deployment.send("south", 50, up_to=60)
    gone(deployment)  # as far as is known; it comes back during the fault, and the cluster does not see it
    deployment.tick(30)
    match fault:
        case "stopped":
            deployment.now += 3600
        case "broker outage":
            deployment.link.connected.clear()
            deployment.tick(3600)
            deployment.link.connected.set()
            deployment.ingest.connected()
        case "cut that is not noticed":
            deployment.answers = False
            deployment.tick(3600)
            deployment.answers = True
            deployment.ingest.connected()
        case _:
            commits = deployment.writer._commits
            commits.unknown(commits.begin())
            deployment.tick(3600)
            commits.known(made=True)
    deployment.status("south", Presence.ONLINE)
    deployment.tick(20)
    assert deployment.up_to == 10
    deployment.status("north", Presence.ONLINE)
    deployment.tick(100)
    await deployment.send("north", 12, up_to=100)
    assert (deployment.late, deployment.up_to) == ([], 60)


async def test_a_proxy_that_died_while_the_broker_was_away_is_not_taken_for_connected(tmp_path: Path) -> None:
    deployment = await Deployment(tmp_path, 60.0).begin()
    await deployment.send("south", 50, up_to=60)
    deployment.ingest.connected()  # the broker has lost what it retained, and knows no will
    deployment.status("south", Presence.ONLINE)
    deployment.tick(50)
    assert deployment.up_to == 10
    deployment.tick(20)
    assert deployment.up_to == 60


async def test_it_is_shown_which_proxy_and_mote_a_stream_waits_for(tmp_path: Path) -> None:
    deployment = await Deployment(tmp_path, None).begin()
    await deployment.send("south", 50, up_to=60)
    found = deployment.writer.waited_for
    assert found is not None
    assert (found.proxy, found.away) == ("north", False)
    report = ProxyWaits(VERSION, "north", (StreamWait("traffic", "m7", 9 * S, silent=False),))
    deployment.receive(topics.proxy_waits("north"), encode(report))
    deployment.receive(topics.proxy_waits("south"), encode(report))  # of another proxy
    deployment.receive(topics.proxy_waits("north"), encode(ProxyWaits(VERSION, "north", ())), retain=True)
    assert deployment.ingest.rejected == {"identity": 1, "retained": 1}
    assert deployment.ingest.stream_waits.of("north", "traffic") == (report.streams[0], 5 * S)
    assert deployment.ingest.stream_waits.of("south", "traffic") is None
    assert deployment.ingest.stream_waits.of("north", "weather") is None


@pytest.fixture
async def api(service: Service) -> AsyncIterator[httpx.AsyncClient]:
    async with application(service.parts()) as client:
        yield client


async def test_the_api_sets_and_shows_how_long_a_stream_waits(api: httpx.AsyncClient, service: Service) -> None:
    path = "/v1/streams/traffic/gone-after"
    (shown,) = (await api.get("/v1/streams")).json()
    assert (shown["gone_after_seconds"], shown["waits_for"]) == (None, None)
    assert (await api.put(path, json={"seconds": 600})).status_code == 204
    (shown,) = (await api.get("/v1/streams")).json()
    assert shown["gone_after_seconds"] == 600.0
    assert GoneProxies(service.registry, 5.0).after("traffic") == 600.0  # after a restart
    assert (await api.put(path, json={"seconds": None})).status_code == 204
    assert GoneProxies(service.registry, 5.0).after("traffic") is None
    assert (await api.delete(path)).status_code == 204
    assert GoneProxies(service.registry, 5.0).after("traffic") == 5.0
    assert (await api.put("/v1/streams/gone/gone-after", json={})).status_code == 409


@pytest.mark.parametrize("body", [{"seconds": 0}, {"seconds": -1}, {"seconds": 1e300}, {"seconds": "long"}, []])
async def test_odd_times_are_refused(api: httpx.AsyncClient, body: object) -> None:
    assert (await api.put("/v1/streams/traffic/gone-after", json=body)).status_code == 422


async def test_the_api_shows_waits_of_streams_and_queries(api: httpx.AsyncClient, service: Service) -> None:
    await api.post("/v1/queries", json={"sql": "SELECT speed FROM traffic", "name": "q"})
    for proxy, watermark_us in (("north", 10), ("south", 20)):
        frame = Batch(1, proxy, "e", "traffic", 1, watermark_us, True, 0, ())
        await service.handle(topics.batches(proxy), encode_batch(frame))
    wait = StreamWait("traffic", "m7", 9 * S, silent=False)
    await service.handle(topics.proxy_waits("north"), encode(ProxyWaits(VERSION, "north", (wait,))))
    service.ingest.writers["traffic"].admission.note_late("south", 3)
    (shown,) = (await api.get("/v1/streams")).json()
    found = shown["waits_for"]
    assert (found["proxy"], found["online"], found["mote"]["mote"]) == ("north", True, "m7")
    assert 9 <= found["mote"]["seconds"] < 60
    assert shown["gone"] == {"proxies": [], "late_rows": {"south": 3}}
    query = (await api.get("/v1/queries/q")).json()
    assert [(each["stream"], each["proxy"]) for each in query["waits_for"]] == [("traffic", "north")]


def test_what_was_set_for_a_stream_goes_with_it(service: Service) -> None:
    times = GoneProxies(service.registry, None)
    times.set("traffic", GoneAfter(5.0), {"traffic": 1})
    times.forget("traffic")
    assert (times.after("traffic"), service.registry.streams.gone_after()) == (None, {})


MOTE = {"mote": "m7", "silent": False, "since": "T1", "seconds": 20.0}
WAIT = {"proxy": "north", "online": True, "since": "T0", "seconds": 20.0, "mote": MOTE}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, "stream s waits for proxy north since T0: mote m7 there sent its last packet at T1"),
        ({"mote": None}, "stream s waits for proxy north since T0"),
        ({"online": False}, "stream s waits for proxy north, which is offline, since T0"),
        (
            {"mote": {**MOTE, "silent": True}},
            "stream s waits for proxy north since T0: all motes there are silent, mote m7 since T1",
        ),
    ],
)
def test_what_a_stream_waits_for_is_a_sentence(changed: dict[str, Any], expected: str) -> None:
    assert wait_text({"stream": "s", **WAIT, **changed}) == expected


def test_the_commands_set_and_show_it(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[object, ...]] = []
    shown: dict[str, Any] = {
        "name": "s", "kind": "base", "fields": [{"name": "v", "type": "real", "unit": "C"}], "watermark": "W",
        "lag": None,
        "waits_for": WAIT, "gone_after_seconds": 600.0, "gone": {"proxies": ["east"], "late_rows": {"east": 1_234}},
    }  # fmt: skip

    class Client:
        def __enter__(self) -> Self:
            return self

        def __exit__(self, *error: object) -> None:
            pass

        def set_gone_after(self, name: str, seconds: float | None) -> None:
            calls.append((name, seconds))

        def reset_gone_after(self, name: str) -> None:
            calls.append((name,))

        def status(self) -> dict[str, Any]:
            return {}

        def streams(self) -> list[dict[str, Any]]:
            return [shown]

    monkeypatch.setattr("cluster.service.catalog.stream_command.make_client", lambda _: Client())
    run = CliRunner().invoke
    assert run(stream, ["set", "s", "--gone-after", "10m"]).exit_code == 0
    assert run(stream, ["set", "s", "--never"]).exit_code == 0
    assert run(stream, ["set", "s", "--as-others"]).exit_code == 0
    for wrong in ([], ["--never", "--as-others"], ["--gone-after", "10m", "--never"], ["--gone-after", "10ms"]):
        assert run(stream, ["set", "s", *wrong]).exit_code == 2
    assert calls == [("s", 600.0), ("s", None), ("s",)]
    listed = run(stream, ["list"]).output
    assert "stream s waits for proxy north since T0: mote m7 there sent its last packet at T1" in listed
    assert "stream s goes on without proxy east, which is gone: rows in its spool may be too late" in listed
    assert "1,234 rows of stream s came too late from proxy east" in listed
    one = run(stream, ["show", "s"]).output
    assert [line.split() for line in one.splitlines()][2:6] == [
        ["column", "v", "real", "[C]"], ["up", "to", "W"], ["queries", "lag", "-"],
        ["waits", "for", *wait_text({"stream": "s", **WAIT}).split()],
    ]  # fmt: skip
    assert "gone after  10m" in one
    assert run(stream, ["show", "other"]).exit_code == 2
    shown["waits_for"] = {**WAIT, "seconds": 3.0}
    assert "waits for" not in run(stream, ["list"]).output
