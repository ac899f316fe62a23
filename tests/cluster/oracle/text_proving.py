"""Random texts over many stream sets: what they mean against what they answer."""

from __future__ import annotations

import random

from tests.cluster.oracle.proving import MismatchError
from tests.cluster.oracle.text_definition import TextDefinition
from tests.cluster.oracle.text_differences import TextTally, differences
from tests.cluster.oracle.text_leaves import Turns
from tests.cluster.oracle.text_queries import random_text
from tests.cluster.oracle.text_shrinking import report_of
from tests.cluster.oracle.text_world import random_world

WORLDS = 8
TEXTS_PER_WORLDS = 10


def search_texts(seed: int, texts: int, *, worlds: int = WORLDS, shrink: bool = True) -> TextTally:
    """Prove so many random texts, each on several random stream sets; the seed decides everything.

    Parameters
    ----------
    seed, texts
        Which texts, and how many.
    worlds
        How many stream sets for each.
    shrink
        False to report a mismatch as it was found, at once.

    Raises
    ------
    MismatchError
        With a report.
    """
    tally, turns = TextTally(), Turns()
    for number in range(0, texts, TEXTS_PER_WORLDS):
        dice = random.Random(f"{seed}/{number}")
        stream_sets = [random_world(dice) for _ in range(worlds)]
        definition = TextDefinition(stream_sets)
        try:
            for place in range(number, min(number + TEXTS_PER_WORLDS, texts)):
                own = random.Random(f"{seed}/{place}")
                text = random_text(own, turns)
                for run, wrong in differences(text, stream_sets, definition, own, tally):
                    report = report_of(text, stream_sets[run], wrong, shrink=shrink)
                    raise MismatchError(f"text {place} of seed {seed}: {report}")
        finally:
            definition.close()
    return tally
