"""Texts from outside, shown on a terminal."""

import pytest

from protocols.text.plain_text import printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, ä, 车, 🚗, e\u0301", "plain, ä, 车, 🚗, e\u0301"),
        ("\x1b[31mred\x07", r"\x1b[31mred\x07"),
        ("\x9bm\x7f", r"\x9bm\x7f"),
        ("a\u202eb\u2066", r"a\u202eb\u2066"),
        ("a\udcffb", r"a\udcffb"),
        ("a\u2028b\tc\rd", r"a\u2028b\tc\rd"),
        ("a\nb", "a\nb"),
    ],
)
def test_only_characters_that_control_a_terminal_are_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_a_cell_has_one_line() -> None:
    assert printable("a\nb", lines=False) == r"a\nb"
