"""Runs operators that pair tuples of two inputs by stamps: disordered, cut into batches, restarted now and then."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import polars as pl
from hypothesis import strategies as st

from cluster.fjord.batch import ALWAYS, END, NEVER, START, Batch
from cluster.fjord.operator import Operator
from cluster.fjord.saved_state import pack_state, unpack_state
from tests.cluster.zip_definition import Stamped

NAMES = (("k", "n"), ("k2", "n2"))
TYPES = (pl.String, pl.Int64)
ROWS = st.lists(
    st.tuples(st.integers(0, 30), st.tuples(st.sampled_from(["a", "a", "b", None]), st.integers(0, 3) | st.none())),
    max_size=14,
)
"""Tuples of an input."""


def frame(side: int, rows: list[Stamped]) -> pl.DataFrame:
    """Return tuples of an input as rows."""
    schema = {START: pl.Int64, END: pl.Int64, **dict(zip(NAMES[side], TYPES, strict=True))}
    return pl.DataFrame([(at, at + 1, *row) for at, row in rows], schema=schema, orient="row")


EMPTY = frame(0, []), frame(1, [])


def run_two_sided(
    make: Callable[[], Operator], sides: list[list[Stamped]], dice: random.Random, *, last: int
) -> Counter[Stamped]:
    """Feed both inputs, some rows long before the watermark reaches them; return what is answered.

    Parameters
    ----------
    make
        Returns the operator without state.
    sides
        The tuples of each input.
    dice
        For cuts, disorder and restarts.
    last
        No watermark is above this but that of the end.
    """
    subject = make()
    waiting = [list(rows) for rows in sides]
    reached, promised = [ALWAYS, ALWAYS], ALWAYS
    found: Counter[Stamped] = Counter()
    while min(reached) < NEVER:
        port = dice.choice([port for port in (0, 1) if reached[port] < NEVER])
        until = dice.choice([reached[port], max(reached[port], -1) + dice.randint(1, 9), NEVER])
        until = NEVER if until > last else until
        early = dice.random()
        comes = [at < until or dice.random() < early for at, _ in waiting[port]]
        brought = [each for each, now in zip(waiting[port], comes, strict=True) if now]
        waiting[port] = [each for each, now in zip(waiting[port], comes, strict=True) if not now]
        dice.shuffle(brought)
        emitted = subject.transition(port, Batch(frame(port, sorted(brought, key=lambda each: each[0])), until))
        reached[port] = max(reached[port], until)
        starts = emitted.rows[START].to_list()
        assert starts == sorted(starts), "in start order"
        assert all(start >= promised for start in starts), "never before an earlier watermark"
        assert emitted.watermark_us == min(reached)
        assert all(end == start + 1 for start, end, *_ in emitted.rows.rows())
        promised = emitted.watermark_us
        found.update((start, tuple(row)) for start, _, *row in emitted.rows.rows())
        if dice.random() < 0.3:
            state = unpack_state(pack_state(subject.save()))
            subject = make()
            subject.restore(state)
    kept = subject.save()
    assert all(table.height == 0 for table in kept.values() if isinstance(table, pl.DataFrame)), "nothing stays"
    return found
