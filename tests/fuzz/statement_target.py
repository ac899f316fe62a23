"""Texts of statements, random queries and what is left of them, from their planning to what motes are asked for."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any

from cluster.language.errors import FjordSqlError
from cluster.language.translation import parse_statement, translate_derived
from cluster.physical.lowering import with_query
from cluster.physical.nodes import NOTHING
from cluster.physical.text import plan_text
from cluster.plan.epoch import PlannedQuery
from cluster.planning_budget import Budget, limited
from cluster.service.catalog.planning import PlanningContext
from protocols.acquisition.merging import Merger
from protocols.acquisition.needs import fold_demands
from protocols.acquisition.program_reports import ProgramStyle, traits_of
from protocols.errors import FjordError
from protocols.wire.demands import StreamDemand, decode_demand, encode_demands, encode_query_demand
from protocols.wire.frames import VERSION
from protocols.wire.packets import Announcement
from tests.cluster.oracle.text_leaves import Turns
from tests.cluster.oracle.text_queries import random_text
from tests.cluster.oracle.text_world import CATALOG, SCHEMAS
from tests.cluster.oracle.text_writing import written
from tests.fuzz.drawing import TEXTS
from tests.fuzz.proxy_world import SECOND_US

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from random import Random

    from cluster.language.catalog import Catalog
    from cluster.operators import Node
    from protocols.wire.streams import StreamSchema

PLANNING_SECONDS = 5.0
SECRET = "s3cret"
RELATIONS = (
    f"CREATE RELATION places FROM 'postgresql://anna:{SECRET}@db.example/roads?sslmode=require' TABLE places",
    f"CREATE RELATION r (a TEXT, b INTEGER) FROM 'postgresql://u:{SECRET}@h/d?sslpassword={SECRET}' QUERY 'SELECT 1'",
    f"CREATE RELATION r FROM 'host=h password={SECRET}' TABLE t REFRESH EVERY 5 MINUTES",
)
WORDS = """
    SELECT FROM WHERE GROUP BY HAVING WINDOW(RANGE 5 SECONDS) WINDOW(ROWS 3) SLIDE PARTITION AND OR NOT IN EXISTS
    BETWEEN LIKE NULL IS CASE WHEN THEN ELSE END UNION ALL EXCEPT INTERSECT DISTINCT COUNT(*) SUM( AVG( ( ) , . * + - /
    % = <> < <= 1 0 -1 1e308 1e999 9223372036854775807 9223372036854775808 'x' '' "q" ISTREAM( DSTREAM( WITHIN LIFETIME
    SINCE BEGINNING EMIT EARLY FINAL SAMPLE EVERY EVENTS COMPLETENESS() ; -- /* */ \\ $1 ? @x alpha Beta wild k v
""".split()  # noqa: SIM905 - it reads better
MOST_DEMANDED = 8


class StatementTarget:
    """One statement."""

    name = "statements"
    errors: tuple[type[FjordError], ...] = (FjordError,)
    limit_seconds = PLANNING_SECONDS + 1.0

    def steps(self, dice: Random) -> Iterator[Callable[[], object]]:
        """Yield the planning of a text, what a plan leads to, and what an error shows."""
        derived, text = _text(dice, Turns())
        catalog = CATALOG
        for each in derived:
            found: list[Any] = []
            yield partial(_kept, found, partial(translate_derived, each, catalog))
            if not found:
                return
            catalog = catalog.with_stream(found[0])
        if text.startswith("CREATE"):
            yield partial(shown, text, partial(parse_statement, text))
            return
        planned: list[Node] = []
        yield partial(shown, text, partial(_plan, planned, text, catalog))
        if planned:
            yield partial(demanded, planned[0])


def _text(dice: Random, turns: Turns) -> tuple[Sequence[str], str]:
    if dice.random() < 0.15:
        return (), worse(dice.choice(RELATIONS), dice)
    derived, text = written(random_text(dice, turns))
    return derived, worse(text, dice) if dice.random() < 0.7 else text


def worse(text: str, dice: Random) -> str:
    """Return a text with some of its words left out, moved, doubled or replaced."""
    words = re.findall(r"\s+|\w+|'[^']*'|.", text)
    for _ in range(dice.choice((1, 1, 2, 5))):
        place = dice.randrange(len(words) + 1)
        match dice.randrange(7):
            case 0:
                del words[place : place + 1]
            case 1:
                words[place:place] = [" ", dice.choice(WORDS), " "]
            case 2:
                words[place : place + 1] = [dice.choice(WORDS)]
            case 3:
                words[place : place + 1] = [dice.choice(TEXTS)]
            case 4:
                words[place:place] = words[place : place + dice.choice((1, 5, 40))]
            case 5:
                words[place:place] = ["(" * dice.choice((1, 30, 400))]
            case _:
                words[place:place] = [
                    dice.choice((" AND ", " + ", " OR NOT ")).join(["k = 1"] * dice.choice((2, 60, 800)))
                ]
    return "".join(words)


def shown(text: str, plan: Callable[[], object]) -> None:
    """Plan; an error says what is wrong without any password of the text."""
    try:
        plan()
    except FjordError as error:
        seen = [str(error), repr(error), error.hint or ""]
        if isinstance(error, FjordSqlError):
            seen.append(error.underlined())
        if text.count(SECRET) and _is_address(text):
            assert not any(SECRET in each for each in seen), f"the error shows a password: {seen}"
        raise


def _is_address(text: str) -> bool:
    """Return whether the passwords of a text are still where an address or an option has them."""
    rest = re.sub(rf"://[^/@:'\s]*:{SECRET}@|password={SECRET}\b", "", text)
    return SECRET not in rest


def _plan(planned: list[Node], text: str, catalog: Catalog) -> None:
    context = PlanningContext(catalog, {}, frozenset())
    with limited(Budget(PLANNING_SECONDS)):
        planned.append(context.planned(text)[1])


def _kept(found: list[Any], work: Callable[[], object]) -> None:
    found.append(work())


def demanded(node: Node) -> None:
    """Lower a query, and merge its demands for a mote of each stream as a proxy does once it has decoded them."""
    plan = with_query(NOTHING, PlannedQuery("q", 1, node))
    assert plan_text(plan)
    for stream, demands in plan.subscribers["q@1"].demands.streams:
        head = StreamDemand(VERSION, "c", stream, 1, ())
        message = encode_demands(head, [encode_query_demand(each) for each in demands])
        read = decode_demand(message)
        assert read.demands == tuple(demands)
        schema = SCHEMAS.get(stream)
        if schema is None or len(demands) > MOST_DEMANDED:
            continue
        merger = Merger(fold_demands(read.demands, schema), ProgramStyle())
        announcement = _announcement(schema)
        merger.merge(traits_of(announcement), announcement.properties, at_once=True)
        assert not merger.left_out, merger.left_out


def _announcement(schema: StreamSchema) -> Announcement:
    properties = {each.name: None for each in schema.fields if each.fixed}
    return Announcement(VERSION, "m1", 1, "loop", schema, properties, SECOND_US, 1_000)
