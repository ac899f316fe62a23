from __future__ import annotations

from operator import itemgetter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.wire.batches import decode_batch, encode_batch
from protocols.wire.streams import Field, FieldType, StreamSchema
from proxy.fleet.batching import BatchLimits, CutBatch, WaitingTuples
from proxy.records.waiting_tuples import Aggregated, MotePosition, PacketTuples, WaitingTuple

SCHEMA = StreamSchema("s", (Field("a", FieldType.REAL), Field("t", FieldType.TEXT), Field("b", FieldType.BOOLEAN)))


def waiting(start, *values, mote="m", sequence=0):
    return PacketTuples.of([WaitingTuple(start, values or (1.0, "x", None), MotePosition(mote, 1, sequence, 0))])


def queue(*tuples, **limits):
    made = WaitingTuples(BatchLimits(**limits))
    for each in tuples:
        made.add(each)
    return made


def starts(packets):
    return [each.start_us for each in CutBatch(SCHEMA, 1, 0, False, packets).tuples]


@pytest.mark.parametrize(
    ("limits", "batches"),
    [
        ({}, [[1, 2, 3]]),
        ({"rows": 2}, [[1, 3], [2]]),
        ({"size_bytes": 1}, [[3], [1], [2]]),
        ({"waiting": 2}, [[1, 2]]),
    ],
)
def test_waiting_tuples_are_cut_into_batches_by_rows_bytes_and_room(limits, batches):
    made = queue(waiting(3), waiting(1), waiting(2), **limits)
    found = []
    while made:
        found.append(starts(made.take(SCHEMA)))
    assert found == batches


def test_size_counts_the_text():
    made = queue(*[waiting(each, 1.0, "é" * 100, None) for each in range(10)], size_bytes=1_000)
    batch = made.take(SCHEMA)
    assert 0 < len(batch) < 5


def test_dropped_are_the_oldest():
    made = queue(waiting(1), waiting(2), waiting=2)
    (dropped,) = made.add(waiting(3))
    assert dropped.starts_us == (1,)
    assert starts(made.take(SCHEMA)) == [2, 3]


def test_positions_are_the_latest_of_each_mote():
    cut = CutBatch(
        SCHEMA,
        1,
        0,
        True,
        (
            waiting(1, sequence=4),
            waiting(2, sequence=5),
            waiting(2, sequence=3),
            waiting(3, mote="n", sequence=1),
        ),
    )
    assert {name: each.sequence for name, each in cut.positions.items()} == {"m": 5, "n": 1}


@given(
    st.lists(
        st.tuples(
            st.integers(-(2**60), 2**60),
            st.none() | st.floats(allow_nan=False),
            st.none() | st.text(max_size=5),
            st.none() | st.booleans(),
        ),
        max_size=20,
    )
)
def test_batch_holds_the_waiting_tuples(rows):
    tuples = tuple(waiting(start, *values) for start, *values in rows)
    made = decode_batch(encode_batch(CutBatch(SCHEMA, 1, 0, False, tuples).as_batch("p", "e")))
    columns = [column.values(made.rows) for column in made.columns]
    found = [tuple(each) for each in zip(*columns, strict=True)] if rows else []
    assert found == sorted([(start, "m", True, *values) for start, *values in rows], key=itemgetter(0))


packets = st.lists(
    st.tuples(
        st.sampled_from(["m", "mote", "n"]),
        st.sampled_from([1, 2, 3]),  # default period
        st.lists(st.tuples(st.integers(-9, 9), st.none() | st.sampled_from(["min", None])), min_size=1, max_size=4),
    ),
    max_size=6,
)


@given(packets, st.integers(1, 9), st.integers(1, 300))
def test_packets_that_wait_together_make_the_batches_of_tuples_that_wait_alone(drawn, rows, size_bytes):
    limits = BatchLimits(12, rows, size_bytes)
    together, alone = WaitingTuples(limits), WaitingTuples(limits)
    for sequence, (mote, period, stamps) in enumerate(drawn):
        position = MotePosition(mote, 1, sequence, 0)
        tuples = [
            WaitingTuple(
                start,
                (float(start), "x" * abs(start), None),
                position,
                aggregated=fingerprint and Aggregated(fingerprint),
            )
            for start, fingerprint in stamps
        ]
        packet = PacketTuples.of(tuples, period)
        dropped = [each for n in range(len(packet)) for gone in alone.add(packet.cut(n, n + 1)) for each in gone]
        assert [each for gone in together.add(packet) for each in gone] == dropped
        assert [each.at_default_rate for each in packet] == [
            bool(fingerprint) or start % period == 0 for start, fingerprint in stamps
        ]
    while together or alone:
        cuts = [CutBatch(SCHEMA, 1, 0, True, each.take(SCHEMA)) for each in (together, alone)]
        assert cuts[0].tuples == cuts[1].tuples
        assert cuts[0].positions == cuts[1].positions
        batch = cuts[0].as_batch("p", "e")
        assert batch == cuts[1].as_batch("p", "e")
        columns = {column.name: column.values(batch.rows) for column in batch.columns}
        assert columns["fjord_start_us"] == [each.start_us for each in cuts[0].tuples]
        assert columns["fjord_mote"] == [each.position.mote for each in cuts[0].tuples]
        assert columns["fjord_default_rate"] == [each.at_default_rate for each in cuts[0].tuples]
        assert list(zip(columns["a"], columns["t"], columns["b"], strict=True)) == [
            each.values for each in cuts[0].tuples
        ]


def test_many_tuples_at_once_are_cut_into_batches_with_as_much_work_as_there_are_tuples(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Counts of missing samples come by the hundred thousand when a watermark jumps."""
    copied: list[int] = []
    cut = PacketTuples.cut

    def counting(self: PacketTuples, first: int, end: int | None = None) -> PacketTuples:
        copied.append(len(found := cut(self, first, end)))
        return found

    monkeypatch.setattr(PacketTuples, "cut", counting)
    many = PacketTuples.of([WaitingTuple(at, (1.0, "x", None), MotePosition("m", 1, 0, 0)) for at in range(5_000)])
    made = queue(waiting(-1), rows=10)
    made.join(many)
    batches = []
    while made:
        batches.append(starts(made.take(SCHEMA)))
    assert [at for batch in batches for at in batch] == list(range(-1, 5_000))
    assert {len(batch) for batch in batches[:-1]} == {10}
    assert sum(copied) <= 4 * len(many)
