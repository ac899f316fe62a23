"""Random streams for extents, and one stream through eager, lazy, batched and brute force at once."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import numpy as np

from cluster.temporal.windows import CountWindow, Equal, Increasing, Link, TimeWindow, Window, Within
from tests.cluster.temporal.batched_extent import BatchedExtent, equal
from tests.cluster.temporal.definition import Sample, coalesced_by_definition, live_samples, verdict
from tests.cluster.temporal.runs import Coalesced
from tests.cluster.temporal.shared_extents import SharedExtents, StreamSchema, coalescing_query

ARRAY_LINKS = {
    Equal(): equal,
    Increasing(): lambda earlier, later: later > earlier,
    Within(2): lambda earlier, later: np.abs(later - earlier) <= 2,
}
KEYED = StreamSchema(key=("group",), invariant=(), varying=("value",))
UNKEYED = StreamSchema(key=(), invariant=("group",), varying=("value",))


@dataclass(frozen=True)
class Stream:
    """Samples in the order in which they come, and what is done with them."""

    samples: list[Sample]
    window: Window
    link: Link
    keyed: bool
    batches: list[int]
    """Where batches begin."""


def drawn(seed: int) -> Stream:
    """Draw a stream: in order, mildly late or shuffled, of few groups and values, with equal stamps if it has a key."""
    random = Random(seed)
    count, groups, values = random.randint(1, 60), random.randint(1, 4), random.randint(1, 4)
    keyed = random.random() < 0.5
    if keyed:
        stamps = sorted(random.randint(0, 40) for _ in range(count))
    else:
        stamps = sorted(random.sample(range(100), count))
        if random.random() < 0.2:  # some come twice
            stamps = sorted([*stamps, *random.choices(stamps, k=3)])
    samples: list[Sample] = [(at, (random.randrange(groups),), (random.randrange(values),)) for at in stamps]
    disorder = random.choice([0, 3, 10, 200])
    samples = [
        each for _, each in sorted(((place + random.uniform(0, disorder)), each) for place, each in enumerate(samples))
    ]
    window: Window = (
        CountWindow(random.choice([1, 2, 5, 12, 100]))
        if random.random() < 0.5
        else TimeWindow(random.choice([0, 1, 7, 20, 200]))
    )
    begins = sorted({0, *(random.randrange(len(samples)) for _ in range(random.randint(0, 8)))})
    return Stream(samples, window, random.choice(list(ARRAY_LINKS)), keyed, begins)


def compare(stream: Stream) -> None:
    """Assert after every arrival that all ways agree, and after every batch that the batched one does."""
    schema = KEYED if stream.keyed else UNKEYED
    query = coalescing_query(schema, ["value"], ["group"], stream.link)
    eager = SharedExtents(schema, stream.window, [query], [query])
    lazy = SharedExtents(schema, stream.window, [query], [])
    batched = BatchedExtent(stream.window, ARRAY_LINKS[stream.link])
    kept: list[Sample] = []
    after: list[tuple[list[Coalesced], int, int]] = []
    for place, sample in enumerate(stream.samples):
        stamp, group, values = sample
        # Without a key, equal stamps are of one sample, whatever its group: by definition, too.
        as_defined = sample if stream.keyed else (stamp, (), (*group, *values))
        kept.append(as_defined)
        row = {"group": group[0], "value": values[0]}
        found = eager.insert(stamp, row)
        assert found is lazy.insert(stamp, row)
        assert found.name == verdict(kept, stream.window)
        live = live_samples(kept, stream.window)
        if not stream.keyed:
            live = [(at, whole[:1], whole[1:]) for at, _, whole in live]
        expected = coalesced_by_definition(live, stream.link)
        assert eager.answer(query) == expected, (place, eager.answer(query), expected)
        assert lazy.answer(query) == expected, (place, lazy.answer(query), expected)
        after.append((expected, eager.admission.late, eager.admission.duplicates))
    _compare_batches(stream, batched, after)


def _compare_batches(stream: Stream, batched: BatchedExtent, after: list[tuple[list[Coalesced], int, int]]) -> None:
    if not stream.keyed and len({at for at, _, _ in stream.samples}) < len(stream.samples):
        return  # the key of batches is the group
    for begin, end in zip(stream.batches, [*stream.batches[1:], len(stream.samples)], strict=True):
        part = stream.samples[begin:end]
        batched.insert(
            np.array([at for at, _, _ in part], np.int64),
            np.array([group[0] for _, group, _ in part], np.int64),
            np.array([values[0] for _, _, values in part], np.int64),
        )
        groups, starts, ends, values = batched.runs()
        found = sorted(zip(starts.tolist(), groups.tolist(), ends.tolist(), values.tolist(), strict=True))
        expected, late, duplicates = after[end - 1]
        assert found == [(run.start, run.group[0], run.end, run.values[0]) for run in expected]
        assert (batched.late, batched.duplicates) == (late, duplicates)
