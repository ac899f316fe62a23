"""Results have a note when sensors sample less often than demanded."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from cluster.service.publishing.publisher_channel import Note
from cluster.service.queries.lifetime_notes import lifetime_notes
from protocols.wire.catalog import MoteEntry, MoteState


def entry(mote: str, stream: str = "traffic", **rest: object) -> MoteEntry:
    found = MoteEntry(1, mote, "p", "loop", stream, {}, MoteState.SAMPLING, 1, 1, 1, 1, 0, 0, 0, 0, 0, None, 0)
    return msgspec.structs.replace(found, **rest)


def test_there_is_no_note_on_sensors_that_sample_as_demanded() -> None:
    assert lifetime_notes([entry("m1"), entry("m2", "weather", stretched=4)], {"q": {"traffic"}}) == {"q": None}
    assert Note(None).extras(0.0) == {}


def test_notes_have_the_slowest_factor_and_the_number_of_short_lived_sensors() -> None:
    entries = [entry("m1", stretched=4), entry("m2", stretched=2, lifetime_kept=False), entry("m3")]
    note = lifetime_notes(entries, {"q": {"traffic"}})["q"]
    assert note == {"slower": 4, "too_short_lived": 1}
    assert Note(note).extras(0.0) == {"sensors": note}


def test_each_entry_is_read_once_for_all_queries() -> None:
    read = []

    def entries() -> Iterator[MoteEntry]:
        for number in range(100):
            read.append(number)
            yield entry(f"m{number}", f"s{number % 2}", stretched=number)

    streams = {f"q{number}": {f"s{number % 3}"} for number in range(500)}
    notes = lifetime_notes(entries(), streams)
    assert read == list(range(100))
    assert (notes["q0"], notes["q1"], notes["q2"]) == (
        {"slower": 98, "too_short_lived": 0}, {"slower": 99, "too_short_lived": 0}, None,
    )  # fmt: skip
