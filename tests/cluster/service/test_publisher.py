"""The publisher: every stored row, in order, numbered. A broker that goes away may double rows, but loses none."""

from __future__ import annotations

from pathlib import Path

import msgspec
import polars as pl
import pytest

from cluster.plan.epoch import PlanFiles
from cluster.service.publisher import IN_FLIGHT, Publisher
from cluster.service.registry import Registry
from cluster.service.result_messages import instant_text, result_message
from cluster.storage.results_table import ResultsTable
from protocols import topics
from protocols.mqtt import LinkError, Message


class FlakyLink:
    """Fails once, after so many messages."""

    def __init__(self, fails_after: int | None = None) -> None:
        self.published: list[Message] = []
        self._fails_after = fails_after

    async def publish(self, message: Message) -> None:
        if self._fails_after is not None and len(self.published) >= self._fails_after:
            self._fails_after = None
            raise LinkError("the broker went away")
        self.published.append(message)


def make(tmp_path: Path, link: FlakyLink) -> tuple[Publisher, ResultsTable]:
    registry = Registry(tmp_path / "registry.sqlite", PlanFiles(tmp_path / "plans"))
    table = ResultsTable(str(tmp_path / "results"), "f")
    return Publisher(table, registry, link), table  # type: ignore[arg-type]


def answers(count: int, *, kind: str = "row", row: str = '{"x":1}') -> pl.DataFrame:
    starts = list(range(count))
    return pl.DataFrame(
        {"query": ["q"] * count, "start_us": starts, "end_us": [at + 1 for at in starts], "kind": [kind] * count,
         "row": [row] * count}
    )  # fmt: skip


def sequences(link: FlakyLink) -> list[int]:
    return [msgspec.json.decode(message.payload)["sequence"] for message in link.published]


async def test_rows_are_published_once_in_order(tmp_path: Path) -> None:
    link = FlakyLink()
    publisher, table = make(tmp_path, link)
    assert not await publisher.publish_next()
    table.append(answers(3), 0)
    table.append(answers(2), 1)
    assert await publisher.publish_next()
    assert await publisher.publish_next()
    assert not await publisher.publish_next()
    assert sequences(link) == [1, 2, 3, 4, 5]
    assert {message.topic for message in link.published} == {topics.results("q")}


async def test_after_a_failure_it_goes_on_where_the_broker_had_acknowledged(tmp_path: Path) -> None:
    link = FlakyLink(fails_after=IN_FLIGHT + 7)
    publisher, table = make(tmp_path, link)
    table.append(answers(2 * IN_FLIGHT), 0)
    with pytest.raises(LinkError):
        await publisher.publish_next()
    while await publisher.publish_next():
        pass
    assert set(sequences(link)) == set(range(1, 2 * IN_FLIGHT + 1))
    assert sequences(link).count(1) == 1, "what was acknowledged is not published again"


async def test_errors_go_to_the_errors_topic(tmp_path: Path) -> None:
    link = FlakyLink()
    publisher, table = make(tmp_path, link)
    table.append(answers(1, kind="error", row='"division went wrong"'), 0)
    await publisher.publish_next()
    (message,) = link.published
    assert message.topic == topics.query_errors("q")
    assert msgspec.json.decode(message.payload)["error"] == "division went wrong"


@pytest.mark.parametrize(
    ("instant_us", "text"),
    [
        (0, "1970-01-01T00:00:00.000000Z"),
        (1_330_561_799_999_999, "2012-03-01T00:29:59.999999Z"),
        (-1, "1969-12-31T23:59:59.999999Z"),
        (2**62, None),
        (2**61, f"{2**61}us"),
    ],
)
def test_instants_as_text(instant_us: int, text: str | None) -> None:
    assert instant_text(instant_us) == text


def test_a_row_is_json_as_documented() -> None:
    payload = result_message("q1", 17, 0, 2**62, '{"sensor":"7","speed":66.5}')
    assert msgspec.json.decode(payload) == {
        "query": "q1",
        "sequence": 17,
        "start": "1970-01-01T00:00:00.000000Z",
        "end": None,
        "row": {"sensor": "7", "speed": 66.5},
    }


async def test_rows_say_which_relations_were_stale(tmp_path: Path) -> None:
    link = FlakyLink()
    registry = Registry(tmp_path / "registry.sqlite", PlanFiles(tmp_path / "plans"))
    table = ResultsTable(str(tmp_path / "results"), "f")
    ages = [{"roads": 72.5}, None]
    publisher = Publisher(table, registry, link, stale=lambda _: ages.pop(0))  # type: ignore[arg-type]
    table.append(answers(1), 0)
    table.append(answers(1), 1)
    while await publisher.publish_next():
        pass
    assert [msgspec.json.decode(message.payload).get("stale") for message in link.published] == [{"roads": 72.5}, None]
