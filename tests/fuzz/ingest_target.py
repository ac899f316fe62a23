"""Batches of proxies, valid but plausible or extreme, in any order: admission, and what a stream's table keeps."""

from __future__ import annotations

import asyncio
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.ingest.writer import StreamWriter
from cluster.storage.stream_tables import StreamTable
from protocols.wire.batches import Resumption, decode_packed_batch, encode_batch
from protocols.wire.frames import VERSION
from protocols.wire.streams import Field, FieldType, StreamSchema
from tests.fuzz.frame_target import drawn_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random

    from protocols.errors import FjordError
    from protocols.wire.batches import Ack

SCHEMA = StreamSchema(
    "traffic",
    (
        Field("segment", FieldType.INTEGER, fixed=True),
        Field("speed", FieldType.REAL, "mph"),
        Field("note", FieldType.TEXT),
        Field("wet", FieldType.BOOLEAN),
    ),
)
OTHERS = (
    StreamSchema("traffic", (*SCHEMA.fields[:2], Field("note", FieldType.INTEGER))),
    StreamSchema("traffic", (*SCHEMA.fields, Field("more", FieldType.TEXT))),
    StreamSchema("traffic", SCHEMA.fields[::-1]),
)
PROXIES = ("p", "q")
INSTANTS_US = (0, 10**15, 10**15 + 10, 2**62, -(2**62))
MOST_STEPS = 12


class IngestTarget:
    """The batches of one stream."""

    name = "batches"
    errors: tuple[type[FjordError], ...] = ()
    limit_seconds = 0.5

    def steps(self, dice: Random) -> Iterator[Callable[[], object]]:
        """Yield one batch or one commit after the other; in the end, what is stored is what was admitted."""
        with tempfile.TemporaryDirectory(prefix="fjord-fuzz-") as folder, asyncio.Runner() as runner:
            table = StreamTable(str(Path(folder, "traffic")), SCHEMA)
            writer = StreamWriter(table, acknowledge=_acknowledge, quarantine=lambda *_: None)
            sequences = dict.fromkeys(PROXIES, 0)
            for _ in range(dice.randrange(2, MOST_STEPS)):
                if dice.random() < 0.3:
                    yield lambda: runner.run(writer.commit())
                    continue
                proxy = dice.choice(PROXIES)
                sequences[proxy] = max(1, sequences[proxy] + dice.choice((1,) * 8 + (0, 2, -1)))
                schema = SCHEMA if dice.random() < 0.8 else dice.choice(OTHERS)
                usual = {"sequence": sequences[proxy], "watermark_us": dice.choice(INSTANTS_US[:3])}
                batch = drawn_batch(schema, dice, proxy=proxy, **(usual if dice.random() < 0.9 else {}))
                yield partial(_receive, writer, encode_batch(batch, packed=dice.random() < 0.8))
                if dice.random() < 0.05:
                    resumption = Resumption(VERSION, proxy, "e", "traffic", dice.choice((1, 5, 2**62 - 1)))
                    yield partial(writer.resume, resumption)
            yield lambda: runner.run(writer.commit())
            stored, counters = table.rows_stored(table.version), writer.admission.counters
            yield partial(_agrees, stored, counters.rows)


def _receive(writer: StreamWriter, payload: bytes) -> None:
    writer.receive(decode_packed_batch(payload))


def _agrees(stored: int, admitted: int) -> None:
    assert stored == admitted, f"{stored} rows are stored, {admitted} were admitted"


async def _acknowledge(_: Ack) -> None:
    pass
