import pytest

from protocols.text.quantities import ByteSizeError, byte_size_of_at_least, parse_byte_size


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("0B", 0),
        ("64KiB", 65_536),
        ("64 kib", 65_536),
        ("10MB", 10_000_000),
        ("1GiB", 2**30),
        ("2TB", 2 * 10**12),
        ("0" * 30 + "1B", 1),
    ],
)
def test_sizes_are_read_in_all_spellings(text, size_bytes):
    assert parse_byte_size(text) == size_bytes


@pytest.mark.parametrize(
    "text", ["", "64", "KiB", "1.5MiB", "-1B", "1XB", "1 KiB 2 B", f"{2**63}B", "8388608TiB", "9" * 5000 + "B"]
)
def test_what_is_no_size_is_refused_with_a_hint(text):
    with pytest.raises(ByteSizeError) as refusal:
        parse_byte_size(text)
    assert repr(text) in refusal.value.message
    assert "64KiB" in refusal.value.hint


@pytest.mark.parametrize("amount", [0, 0.5, 1, 1023, 1025, 99.9 * 1024, 2**20 + 1, 3.7 * 2**30, 2**40 - 1, 5.5 * 2**40])
def test_a_size_that_has_to_do_is_written_as_it_is_read(amount):
    assert amount <= parse_byte_size(byte_size_of_at_least(amount)) <= max(amount * 1.01, 1)
