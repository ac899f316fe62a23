"""Every check accepts correct data, and finds violations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.faults import checks
from tests.faults.checks import Outage, Window
from tests.faults.device import Acknowledged, acknowledged
from tests.faults.samples import Answer, MissingSamples, Sample

if TYPE_CHECKING:
    from pathlib import Path

SECOND = 1_000_000
PERIOD = 200_000
WINDOW = Window(0, 2 * SECOND)
STORED = [Sample(mote, at, 50.0, 900.0) for mote in ("m1", "m2") for at in range(0, 2 * SECOND, PERIOD)]
LOST = STORED[3]
BATCHES = {1: STORED[:4], 2: STORED[4:]}


def counts(*missing: int) -> list[MissingSamples]:
    """Return counts for both motes and both panes: five samples were due, and these are missing."""
    panes = [(mote, end) for mote in ("m1", "m2") for end in (SECOND, 2 * SECOND)]
    return [MissingSamples(mote, end, 5, count) for (mote, end), count in zip(panes, missing, strict=True)]


def uncounted(stored: list[Sample], counted: list[MissingSamples], *, exact: bool = True) -> list[str]:
    whole = Window(1, 2 * SECOND + 1)
    return checks.uncounted(
        stored, counted, period_us=PERIOD, pane_us=SECOND, window=whole, exact=exact, motes=["m1", "m2"]
    )


def test_a_doubled_sample_is_found() -> None:
    assert checks.doubled(STORED) == []
    assert checks.doubled([*STORED, LOST]) == [f"1 samples stored more than once: ('m1', {3 * PERIOD})"]


def test_a_sample_that_no_mote_took_is_found() -> None:
    def sensed(mote: str, instant_us: int) -> tuple[float, float]:
        return 50.0, 900.0

    assert checks.falsified(STORED, sensed) == []
    assert "1 samples" in checks.falsified([*STORED, LOST._replace(flow=901.0)], sensed)[0]


def test_an_acknowledged_sample_that_is_not_stored_is_found() -> None:
    left = [sample for sample in STORED if sample != LOST]
    assert checks.missing_acknowledged(STORED, BATCHES, 2, WINDOW) == []
    assert checks.missing_acknowledged(left, BATCHES, 0, WINDOW) == [], "it was not acknowledged"
    assert checks.missing_acknowledged(left, BATCHES, 1, Window(3 * PERIOD + 1, 2 * SECOND)) == [], "too early"
    assert "1 samples acknowledged and not stored" in checks.missing_acknowledged(left, BATCHES, 1, WINDOW)[0]


def test_a_loss_that_is_not_counted_is_found() -> None:
    left = [sample for sample in STORED if sample != LOST]
    assert uncounted(STORED, counts(0, 0, 0, 0)) == []
    assert uncounted(left, counts(1, 0, 0, 0)) == []
    for exact in (True, False):
        assert "though only 4 are stored" in uncounted(left, counts(0, 0, 0, 0), exact=exact)[0]


def test_a_counted_loss_that_did_not_happen_is_found() -> None:
    assert "though 5 are stored" in uncounted(STORED, counts(1, 0, 0, 0))[0]
    assert uncounted(STORED, counts(1, 0, 0, 0), exact=False) == [], "a proxy that was restarted may count too many"


def test_a_pane_without_a_count_is_found() -> None:
    assert "nothing of m2 up to 2000000" in uncounted(STORED, counts(0, 0, 0, 0)[:3])[0]
    assert uncounted(STORED, counts(0, 0, 0, 0)[:3], exact=False) == []


@pytest.mark.parametrize("numbers", [[2, 3], [1, 3], [1, 1, 2], [1, 3, 2]])
def test_a_gap_and_a_number_given_twice_are_found(numbers: list[int]) -> None:
    assert checks.gaps([]) == checks.gaps([1, 2, 3]) == checks.gaps([5, 6], first=5) == []
    assert checks.gaps(numbers)


def test_disorder_is_found() -> None:
    assert checks.disordered([1, 1, 2]) == []
    assert checks.disordered([1, 3, 2]) == ["1 rows out of order: 2 after 3"]


def test_wrong_answers_are_found() -> None:
    right = [Answer(at, at + 1, (at,)) for at in range(10)]
    assert checks.wrong_answers(reversed(right), right) == []
    assert "answers missing" in checks.wrong_answers(right[1:], right)[0]
    assert "should not be" in checks.wrong_answers([*right, right[0]], right)[0]
    assert len(checks.wrong_answers([*right[1:], Answer(0, 1, (7,))], right)) == 2


def message(sequence: int, value: int = 0) -> dict[str, Any]:
    return {"sequence": sequence, "start": "2026-01-01T00:00:00Z", "end": None, "row": {"x": value}}


def test_a_result_that_a_subscriber_did_not_get_is_found() -> None:
    stored = [message(number) for number in range(1, 6)]
    assert checks.undelivered(stored, stored) == []
    assert checks.undelivered(stored, [*stored, message(6)]) == [], "it has come since"
    assert "rows up to 4 of 5" in checks.undelivered(stored, stored[:4])[0]
    assert "gaps" in checks.undelivered(stored, [*stored[:2], *stored[3:]])[0]
    assert "gaps" in checks.undelivered(stored, [*stored, stored[-1]])[0]
    assert "otherwise" in checks.undelivered(stored, [*stored[:4], message(5, 1)])[0]


def test_a_result_that_was_never_published_is_found() -> None:
    assert checks.unpublished([1, 2, 3], {3, 2, 1, 0}) == []
    assert checks.unpublished([1, 2, 3], {1, 3}) == ["1 results never published: 2"]


def test_a_loss_that_must_not_be_is_found() -> None:
    assert checks.uncounted_loss({"late": 0, "given up": 3}, ["given up"]) == []
    assert checks.uncounted_loss({"late": 2, "given up": 3}, ["given up"]) == ["late is 2"]


def test_an_outage_is_measured() -> None:
    """Rows a second apart, none from 13.2 to 17, those of the time before come first then.

    fault        |------|
    rows   1 1 1 1       8 1 1 1
           10    13.2    17
    """
    arrivals = [(10.2, 10.0), (11.2, 11.0), (12.2, 12.0), (13.2, 13.0)]
    arrivals += [(17.0, float(at)) for at in range(14, 16)] + [(18.2, 18.0), (19.2, 19.0)]
    found = checks.outage(arrivals, 13.0, 16.5, 20.0)
    assert found == Outage(pytest.approx(3.8), pytest.approx(1.7))


def test_an_outage_that_does_not_end() -> None:
    assert checks.outage([(10.2, 10.0)], 11.0, 12.0, 20.0) == Outage(pytest.approx(9.8), None)
    assert checks.outage([], 11.0, 12.0, 20.0).recovery is None


SENT = (Acknowledged(1, 10.0, perhaps_twice=False), Acknowledged(2, 11.0, perhaps_twice=True))


@pytest.mark.parametrize(
    ("rows", "counted", "excused", "found"),
    [
        ([1, 2], 0, False, []),
        ([1, 2, 2, 3], 0, False, []),
        ([1], 0, False, ["1 messages that are no rows, 0 counted: 2"]),
        ([1], 1, False, []),
        ([1], 0, True, []),
        ([1, 1, 2], 0, False, ["1 messages that are several rows: 1"]),
    ],
)
def test_each_message_of_a_device_is_a_row_once_or_counted(
    rows: list[int], counted: int, excused: bool, found: list[str]
) -> None:
    """A message that the broker may have twice, or has not acknowledged yet, may be two rows or any number."""
    assert checks.lost_messages(SENT, rows, counted=counted, excused=lambda _: excused) == found


def test_a_device_notes_what_the_broker_has(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("1 10.0\n?2 10.5\n2 11.0\n3 1")
    assert acknowledged(log) == list(SENT), "the last line is not whole"
