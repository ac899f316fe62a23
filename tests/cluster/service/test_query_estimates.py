"""Running queries beside what is estimated of them: by the same figures as before they were added."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.cluster.service.test_adapted_sizes import store

if TYPE_CHECKING:
    from tests.cluster.service.conftest import Service

LOOKED_UP = (
    "SELECT t.speed, p.name FROM traffic AS t, places AS p, closed AS c WHERE t.sensor = p.sensor AND t.sensor = c.gate"
)
CLOSED, PLACES = 2, 100


def estimates(text: str) -> list[list[str]]:
    """Return the figures of the table in a text: rows a second, how long they are valid, rows kept, work."""
    lines = text.splitlines()
    (begin,) = (place for place, line in enumerate(lines) if line.split()[:1] == ["rows/s"])
    table = lines[begin + 1 :]
    return [line.split()[:4] for line in table[: next(i for i, each in enumerate(table) if "in all" in each)]]


async def test_a_lookup_is_expected_to_find_what_it_was_before_the_query_ran(service: Service) -> None:
    store(service, 11)
    folder = service.registry.folder
    for name, column, count in (("places", "sensor", PLACES), ("closed", "gate", CLOSED)):
        path = folder / f"{name}.csv"
        path.write_text("".join([f"{column},name\n", *(f"a{number},n{number}\n" for number in range(count))]))
        await service.queries.relations.execute(f"CREATE RELATION {name} FROM '{path}' REFRESH EVERY 1 HOUR")
    before = estimates(await service.queries.explain(LOOKED_UP))
    await service.queries.add(LOOKED_UP, "looked_up")
    running = estimates(await service.queries.estimates.running("looked_up"))
    assert running == before
    assert str(CLOSED / PLACES) in {figures[0] for figures in running}, "a fiftieth of the tuples is of a closed gate"
