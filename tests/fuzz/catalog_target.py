"""What proxies publish about their motes, and what the cluster shows of it: the relation of sensors, and energy."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cluster.service.billing.energy import explain_energy
from cluster.service.billing.periods import Ledger
from cluster.service.catalog.sensor_catalog import SensorCatalog
from cluster.service.http.sensor_sql import answer
from protocols.errors import FjordError
from protocols.mqtt.link import Message
from protocols.wire import topics
from protocols.wire.catalog import MoteEntry, Presence, Status
from protocols.wire.frames import VERSION, encode
from tests.fuzz.drawing import damaged, drawn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random

QUESTIONS = (
    "SELECT * FROM sensors",
    "SELECT SUM(packets_lost), AVG(battery), MAX(stretched) FROM sensors",
    "SELECT stream, COUNT(*) FROM sensors WHERE battery < 0.5 GROUP BY stream",
)
PROXIES, MOTES = ("p", "q"), ("m1", "m2", "Z9")


class CatalogTarget:
    """Entries and statuses, and the questions of users."""

    name = "entries"
    errors: tuple[type[FjordError], ...] = (FjordError,)
    limit_seconds = 0.5

    def steps(self, dice: Random) -> Iterator[Callable[[], object]]:
        """Yield some entries and statuses, and what is shown of them."""
        ledger = Ledger()
        catalog = SensorCatalog(accepted=ledger.note)
        for _ in range(dice.randrange(1, 12)):
            proxy, mote = dice.choice(PROXIES), dice.choice(MOTES)
            if dice.random() < 0.2:
                topic, frame = (
                    topics.proxy_status(proxy),
                    encode(Status(VERSION, proxy, dice.choice(list(Presence)), "e", 0)),
                )
            else:
                topic = topics.mote_entry(proxy, mote)
                frame = b"" if dice.random() < 0.1 else encode(replace(drawn(MoteEntry, dice), proxy=proxy, mote=mote))
            payload = damaged(frame, dice) if dice.random() < 0.1 else frame
            yield partial(catalog.handle, Message(topic, payload), topics.parse(topic))
        yield partial(_ask, catalog, dice.choice(QUESTIONS))
        yield lambda: explain_energy({}, {}, {}, catalog.snapshot()[0], ledger.measured_mw())
        yield catalog.clock_faults
        yield catalog.samples_rejected


def _ask(catalog: SensorCatalog, question: str) -> None:
    rows = catalog.relation()
    assert rows.height == len(catalog)
    answer(rows, condition=None, sql=question)
