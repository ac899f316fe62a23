"""Results as they are stored and as they are published, in one form to be compared."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from cluster.storage import committed_results
from tests.simulation.cluster_oracles import Result

if TYPE_CHECKING:
    from collections.abc import Mapping

    from protocols.mqtt.messages import Message

SECOND_US = 1_000_000


def stored_result(row: Mapping[str, Any]) -> Result:
    """Return a row of the results table."""
    match row["kind"]:
        case committed_results.OPEN:
            return Result(row["sequence"], row["start_us"], None, row["row"])
        case committed_results.CLOSES:
            return Result(row["sequence"], None, row["end_us"], f"closes {row['closes']}")
        case committed_results.ERROR:
            return Result(row["sequence"], row["start_us"], None, row["row"])
        case _:
            return Result(row["sequence"], row["start_us"], row["end_us"], row["row"])


def received(message: Message) -> tuple[str, Result]:
    """Return the query of a message and its result."""
    body = msgspec.json.decode(message.payload)
    if "closes" in body:
        return body["query"], Result(body["sequence"], None, instant_us(body["end"]), f"closes {body['closes']}")
    if "error" in body:
        at_us = instant_us(body["at"])
        return body["query"], Result(body["sequence"], at_us, None, _json(body["error"]))
    end_us = None if body.get("open") else instant_us(body["end"])
    return body["query"], Result(body["sequence"], instant_us(body["start"]), end_us, _json(body["row"]))


def instant_us(text: str) -> int:
    """Return the instant that a message names, in microseconds since 1970."""
    whole, _, fraction = text.removesuffix("Z").partition(".")
    seconds = datetime.fromisoformat(f"{whole}+00:00").timestamp()
    return int(seconds) * SECOND_US + int(fraction.ljust(6, "0") or 0)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
