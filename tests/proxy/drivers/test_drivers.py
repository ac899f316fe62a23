"""Push-down, and names."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from protocols.wire.programs import SLEEP, Band, DeadBand, Panes, SamplingProgram, SendOnChange
from protocols.wire.topics import check_name
from proxy.drivers.driver import PASSIVE, Capabilities
from proxy.drivers.payloads import NameTable
from proxy.drivers.zigbee_reporting import REPORTING, push_down

S = 1_000_000
CHANGES = SendOnChange((DeadBand("a", 1.0),), 60 * S)


EVERYTHING = Capabilities(
    changes_rate=True, filters=True, sends_on_change=True, aggregates=True, detects_events=True, listens=True
)


def test_programs_are_split_by_capabilities():
    program = SamplingProgram(("a",), 10 * S, report=CHANGES)
    banded = SamplingProgram(("a",), 10 * S, bands=(Band("a", low=0.0),), report=CHANGES)
    panes = SamplingProgram(("a",), S // 2, report=Panes(S))
    plain = SamplingProgram(("a",), 10 * S)
    table = [
        (program, EVERYTHING, program, program, 0),
        (program, REPORTING, program, program, 0),
        (program, PASSIVE, program, plain, 2),
        (banded, REPORTING, banded, plain, 2),
        (banded, PASSIVE, banded, plain, 3),
        (panes, EVERYTHING, panes, panes, 0),
        (panes, REPORTING, SamplingProgram(("a",), S // 2), SamplingProgram(("a",), S // 2), 2),
        (SLEEP, PASSIVE, SLEEP, SLEEP, 0),
    ]
    for demanded, capabilities, accepted, device, left_out in table:
        found = push_down(demanded, capabilities)
        assert (found.accepted, found.device, len(found.left_out)) == (accepted, device, left_out)


@given(st.lists(st.text(min_size=1, max_size=80), unique=True, max_size=20))
def test_names_are_allowed_unique_and_the_same_in_any_order(originals):
    one, other = NameTable(), NameTable()
    names = {each: one.name_of(each) for each in originals}
    assert len(set(names.values())) == len(originals)
    assert {each: other.name_of(each) for each in reversed(originals)} == names
    for name in names.values():
        assert check_name(name) == name


def test_a_name_that_looks_like_anothers_hash():
    names = NameTable()
    first = names.name_of("a b")
    assert names.name_of(first) not in {first, "a b"}
