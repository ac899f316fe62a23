"""Q1 and Q2 of Fjording the Stream (papers/fjords.md section 4), while incidents come and go."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.cluster.oracle.relation_forms import Computed, Named, Probe, Query, Rows, Select, Stream, Table
from tests.cluster.oracle.relation_proving import RelationTally, differences, prove_history
from tests.cluster.oracle.relation_running import Asked, run_history
from tests.cluster.oracle.relation_world import (
    INTEGER,
    PAPER_RELATIONS,
    REAL,
    TEXT,
    Arrival,
    Change,
    History,
    Step,
    random_history,
)
from tests.examples import seeds

KNOWN = Probe(
    "t.segment", "IN", Rows((("known_segments", "k"),), ("k.user = 'a'",), (Named("k.segment", "segment", INTEGER),))
)
WINDOW = Stream("t", "traffic", 20, 10)
SPEED = Named("AVG(t.speed)", "speed", REAL)
Q1 = Select((WINDOW,), (), (KNOWN,), (SPEED,), keys=())
SLOW = Select(
    (Stream("u", "traffic", 20, 10),), (), (),
    (Named("u.segment", "segment", INTEGER), Named("AVG(u.speed)", "speed", REAL)), keys=("u.segment",),
)  # fmt: skip
Q2 = Select(
    (WINDOW, Computed("s", SLOW), Table("i", "incidents")),
    ("s.segment = t.segment", "s.speed < 2", "i.segment = t.segment"),
    (KNOWN,),
    (Named("i.description", "description", TEXT), SPEED),
    keys=("i.description",),
)
Q2_BY_SEGMENT = replace(
    Q2,
    items=(WINDOW, Computed("s", SLOW), Table("i", "incidents")),
    where=("s.segment = t.segment", "s.speed < 2", "i.segment = s.segment"),
)
"""Incidents as they are when the average is made, not when its tuples were sampled."""
LATEST = 12
"""Incidents are recent for so long."""


def test_the_papers_queries_have_these_texts() -> None:
    assert Q1.fjord == (
        "SELECT AVG(t.speed) AS speed FROM traffic AS t WINDOW(RANGE 20 US SLIDE 10 US) "
        "WHERE t.segment IN (SELECT k.segment AS segment FROM known_segments AS k WHERE k.user = 'a')"
    )
    assert Q2.fjord == (
        "SELECT i.description AS description, AVG(t.speed) AS speed FROM traffic AS t WINDOW(RANGE 20 US SLIDE 10 US), "
        "(SELECT u.segment AS segment, AVG(u.speed) AS speed FROM traffic AS u WINDOW(RANGE 20 US SLIDE 10 US) "
        "GROUP BY u.segment) AS s, incidents AS i "
        "WHERE s.segment = t.segment AND s.speed < 2 AND i.segment = t.segment AND t.segment IN "
        "(SELECT k.segment AS segment FROM known_segments AS k WHERE k.user = 'a') GROUP BY i.description"
    )


@seeds(20)
def test_the_papers_queries_answer_as_defined_while_relations_change(seed: int) -> None:
    dice = random.Random(seed)
    history = random_history(dice, tuple(PAPER_RELATIONS))
    users = ("a", "b", "ab")
    last = len(history.steps)
    selects = [
        replace(select, tests=(replace(KNOWN, rows=replace(KNOWN.rows, where=(f"k.user = '{user}'",))),))
        for select in (Q1, Q2, Q2_BY_SEGMENT)
        for user in users
    ]
    prove_history(history, [Query((select,), 0, last) for select in selects], RelationTally())


def recent(incidents: list[tuple[int, int, str]], now: int) -> Change:
    """Return what the database says when it is asked: SELECT * FROM incidents WHERE time <= now AND time > now - 12."""
    return Change("incidents", tuple(each for each in incidents if now - LATEST < each[1] <= now))


INCIDENTS = [(1, 5, "jam"), (1, 15, "accident"), (2, 16, "ice")]


def test_recent_incidents_are_those_of_the_time_when_a_tuple_was_sampled(tmp_path) -> None:
    known = Change("known_segments", (("a", 1), ("b", 2)))

    def driven(*stamps: int) -> Arrival:
        return Arrival("traffic", tuple((stamp, ("m", segment, 1)) for stamp in stamps for segment in (1, 2)))

    history = History(
        (
            Step((known, recent(INCIDENTS, 0), driven(1, 3)), {"traffic": 5, "weather": 5}),
            Step((recent(INCIDENTS, 5), driven(6, 13)), {"traffic": 15, "weather": 15}),
            Step((recent(INCIDENTS, 16), driven(17, 18)), {"traffic": 20, "weather": 20}),
            Step((recent(INCIDENTS, 20), driven(22)), {"traffic": 30, "weather": 30}),
            Step((), {"traffic": 10_000, "weather": 10_000}),
        )
    )
    query = Query((Q2,), 0, 5)
    assert differences(history, [query]) == {}
    from tests.cluster.oracle.relation_proving import planned

    rows = run_history(tmp_path, history, [Asked("q0", planned(query), 0, 5)]).rows["q0"]
    # The window of [9, 19) has the tuples of 1, 3, 6; only the last met the jam. Those of 17, 18 met the accident too.
    assert sorted(rows) == [
        (9, 19, "jam", 1.0),
        (19, 29, "accident", 1.0),
        (19, 29, "jam", 1.0),
        (29, 39, "accident", 1.0),
        (29, 39, "jam", 1.0),
        (39, 49, "accident", 1.0),
    ]
