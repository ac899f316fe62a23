import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.text.quantities import LARGEST_DURATION_US, DurationError, format_duration, parse_duration_us


@pytest.mark.parametrize(
    ("text", "duration_us"),
    [
        ("30s", 30_000_000),
        ("5 minutes", 300_000_000),
        ("5 MINUTES", 300_000_000),
        ("1 minute", 60_000_000),
        ("250ms", 250_000),
        ("7us", 7),
        ("7µs", 7),
        ("1m30s", 90_000_000),
        ("1 hour 30 minutes", 5_400_000_000),
        ("  2h ", 7_200_000_000),
        ("1.5s", 1_500_000),
        ("0.000001s", 1),
        ("0s", 0),
        ("2d", 172_800_000_000),
        ("9223372036854775807us", LARGEST_DURATION_US),
    ],
)
def test_durations_are_read_in_all_spellings(text, duration_us):
    assert parse_duration_us(text) == duration_us


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it is empty"),
        ("   ", "it is empty"),
        ("30", "'30' has no unit"),
        ("1m30", "'30' has no unit"),
        ("30 parsecs", "unknown unit 'parsecs'"),
        ("-5s", "cannot read '-5s'"),
        ("s", "cannot read 's'"),
        ("1e3s", "unknown unit 'e'"),
        ("30s 1m", "largest to the smallest"),
        ("1s1s", "largest to the smallest"),
        ("0.1us", "finer than a microsecond"),
        ("9223372036854775808us", "too long"),
        ("٣s", "cannot read"),
        ("5 minutes, please", "cannot read ', please'"),
    ],
)
def test_what_is_no_duration_is_refused_with_reason_and_hint(text, reason):
    with pytest.raises(DurationError) as refusal:
        parse_duration_us(text)
    assert reason in refusal.value.message
    assert "1m30s" in refusal.value.hint


@given(st.integers(0, LARGEST_DURATION_US))
def test_what_is_written_reads_back(duration_us):
    assert parse_duration_us(format_duration(duration_us)) == duration_us


def test_negative_durations_are_written_with_a_sign():
    assert format_duration(-90_000_000) == "-1m30s"
