"""Random orders: ORDER BY with LIMIT, OFFSET or FETCH at the end of a query; and ranks, with QUALIFY."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from protocols.wire.streams import FieldType
from tests.cluster.oracle import text_spelling as spelling
from tests.cluster.oracle.text_expressions import INSTANT, Binding, Exactness, Hole, Scalar, Words
from tests.cluster.oracle.text_forms import Output, Select, SetOperation, Star, Top, TopKey, outputs_of
from tests.cluster.oracle.text_leaves import has_column
from tests.cluster.oracle.text_outputs import unique
from tests.cluster.oracle.text_scalars import Scalars

FUNCTIONS = ("ROW_NUMBER", "ROW_NUMBER", "RANK", "DENSE_RANK")
DIRECTIONS = (("", False), ("", False), ("ASC", False), ("DESC", True), ("DESC", True))
NULLS = (("", False), ("", False), ("NULLS LAST", False), ("NULLS FIRST", True))


def with_top(dice: random.Random, query: Select | SetOperation) -> Select | SetOperation:
    """Return a query with an order, and the first rows of it; its columns have to be exact."""
    shown = [each for each in outputs_of(query) if not each.added]
    outside = (query.parentheses > 0 or bool(query.names)) and not query.end and dice.random() < 0.5
    plain = isinstance(query, Select) and not query.distinct and not outside  # outside there are no names of FROM
    keys = []
    for column in dice.sample(range(len(shown)), min(len(shown), dice.choice((1, 1, 2, 3)))):
        text = _written(dice, shown[column], column, anew=plain)
        words, descending, nulls_first = _direction(dice)
        keys.append(TopKey(column, text, words, descending, nulls_first))
    limit = dice.choice((1, 1, 2, 3, None))
    offset = dice.choice((1, 2)) if limit is None or dice.random() < 0.3 else 0
    query = replace(query, parentheses=max(query.parentheses, int(outside)))
    return replace(query, top=Top(tuple(keys), _places(dice, limit, offset), limit, offset, outside))


def _written(dice: random.Random, output: Output, column: int, *, anew: bool) -> str:
    """Return the name or the place of a column; nothing if its expression is to be written once more."""
    alone = output.scalar.known is not None or not (has_column(output.scalar) or output.scalar.aggregate)
    if anew and not alone and not output.scalar.rank and output.scalar.key is None and dice.random() < 0.5:
        return ""
    place = str(column + 1)
    return dice.choice((place, spelling.name(dice, output.name), spelling.name(dice, output.name)))


def _direction(dice: random.Random) -> tuple[str, bool, bool]:
    (way, descending), (nulls, first) = dice.choice(DIRECTIONS), dice.choice(NULLS)
    return f"{way} {nulls}".strip(), descending, first


def _places(dice: random.Random, limit: int | None, offset: int) -> str:
    behind = f"OFFSET {offset}{dice.choice(('', ' ROW', ' ROWS'))}" if offset else ""
    if limit is None:
        return behind
    rows, word = dice.choice(("ROW", "ROWS")), dice.choice(("FIRST", "NEXT"))
    number = "" if limit == 1 and dice.random() < 0.3 else f"{limit} "
    first = dice.choice((f"LIMIT {limit}", f"LIMIT {limit}", f"FETCH {word} {number}{rows} ONLY"))
    parts = [each for each in (first, behind) if each]
    return " ".join(reversed(parts) if dice.random() < 0.3 else parts)


def with_ranks(dice: random.Random, scalars: Scalars, query: Select, read: Sequence[str]) -> Select:
    """Return a SELECT with a rank among its columns, or a condition on one; its columns have to be exact.

    Its name is none of the columns that the SELECT reads: QUALIFY would mean those.
    """
    shown = outputs_of(query)
    rank = _rank(dice, scalars, [each.scalar for each in shown])
    if rank is None:
        return query
    style = dice.choice(("column", "column", "both", "condition", "name", "truth"))
    bounded = replace(
        rank,
        type=FieldType.BOOLEAN,
        text=(*rank.text, f" <= {(most := dice.choice((1, 2, 3)))}"),
        sql=(*rank.sql, f" <= {most}"),
        binding=Binding.COMPARISON,
    )
    if style == "condition":
        return replace(query, qualify=bounded)
    scalar = bounded if style == "truth" else rank
    name = unique(dice.choice(("nth", "standing")), [*(each.name for each in shown), *read])
    named = replace(query, outputs=(*query.outputs, Output(scalar, name, f"AS {name}")))
    if style == "column":
        return named
    if style == "both":
        return replace(named, qualify=bounded)
    return replace(named, qualify=bounded, qualified=name if style == "truth" else f"{name} <= {most}")


def _rank(dice: random.Random, scalars: Scalars, ties: Sequence[Scalar]) -> Scalar | None:
    groups = [each for _ in range(dice.choice((0, 0, 1, 1, 2))) if (each := _value(dice, scalars)) is not None]
    keys = [each for _ in range(dice.choice((1, 1, 2))) if (each := _value(dice, scalars)) is not None]
    if not keys:
        return None
    function = dice.choice(FUNCTIONS)
    parts = (*groups, *keys, *ties)
    text: list[str | Hole] = [f"{function}() OVER ("]
    sql: list[str | Hole] = [f"{function.lower()}() OVER (PARTITION BY ", INSTANT]
    for number in range(len(groups)):
        text += ["PARTITION BY " if number == 0 else ", ", Hole(number)]
        sql += [", ", Hole(number)]
    for number in range(len(groups), len(groups) + len(keys)):
        words, descending, first = _direction(dice)
        text += [(" " if groups else "") + "ORDER BY " if number == len(groups) else ", ", Hole(number), f" {words}"]
        order = f" {'DESC' if descending else 'ASC'} NULLS {'FIRST' if first else 'LAST'}"
        sql += [" ORDER BY " if number == len(groups) else ", ", Hole(number), order]
    if function == "ROW_NUMBER":
        # Rows of equal order are ordered by the columns of SELECT; then groups and keys are equal, too.
        for number in range(len(groups) + len(keys), len(parts)):
            sql += [", ", Hole(number), " ASC NULLS LAST"]
    whole: tuple[Words, Words] = ((*text, ")"), (*sql, ")"))
    return Scalar(FieldType.INTEGER, *whole, parts, exactness=Exactness.SAME, rank=True, default=function.lower())


def _value(dice: random.Random, scalars: Scalars) -> Scalar | None:
    """Return what rows are grouped or ordered by: something that reads a column, and is exact."""
    for _ in range(5):
        kind = dice.choice(scalars.kinds) if scalars.kinds else FieldType.INTEGER
        found = scalars.leaf(kind, Exactness.SAME) if dice.random() < 0.6 else scalars.value(kind, 1, Exactness.SAME)
        if has_column(found) or found.aggregate is not None:
            return replace(found, parentheses=0)
    return None


def columns_are_plain(outputs: Sequence[Output | Star]) -> bool:
    """Return whether all columns are exact enough to be ordered."""
    shown = [each for output in outputs for each in (output.outputs if isinstance(output, Star) else (output,))]
    return all(each.scalar.exactness >= Exactness.SAME for each in shown)
