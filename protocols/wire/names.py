"""Names: of columns, streams, relations, sensors, queries and parameters, wherever they stand.

A column's name is an identifier of Unicode (UAX #31) with ``_``; a name in a topic may also have ``.`` and ``-``, and
begin with a digit. Both are in normal form C, so that what looks alike is equal, and both are compared without case,
by Unicode's case folding, which is the same for all languages.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Final

LONGEST_NAME: Final = 64
"""Characters of a name."""
MOST_BYTES: Final = 128
"""Bytes of a name in UTF-8: a folder's name is made of it (cluster/storage/table_folders.py)."""
NAME_SHAPE: Final = f"letters, digits and _, no digit first; {LONGEST_NAME} characters at most"
ASCII_NAME: Final = r"[A-Za-z0-9]([A-Za-z0-9_.\-]*[A-Za-z0-9])?"
"""What names were in earlier versions; those of proxies and clusters still are: certificates and users have them."""
_BEYOND: Final = r"\x80-\U0010ffff"
IDENTIFIER_PATTERN: Final = rf"^[A-Za-z_{_BEYOND}][A-Za-z0-9_{_BEYOND}]*\Z"
NAME_PATTERN: Final = rf"^[A-Za-z0-9_{_BEYOND}]([A-Za-z0-9_.\-{_BEYOND}]*[A-Za-z0-9_{_BEYOND}])?\Z"
"""Frames are checked against these while they are decoded; letters beyond ASCII where they are used."""
WORD: Final = r"(?:[A-Za-z_]|[^\x00-\xa9\W])(?:\w|[^\x00-\u02ff\s])*"
"""Where a name may stand in a text: more than may be one, so that the message is about the whole of it."""

_INVISIBLE = frozenset(
    chr(each)
    for first, last in (
        (0x034F, 0x034F), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F), (0x3164, 0x3164), (0xFE00, 0xFE0F),
        (0xFFA0, 0xFFA0), (0xE0100, 0xE01EF),
    )
    for each in range(first, last + 1)
)  # fmt: skip
"""Those of Default_Ignorable_Code_Point that XID_Continue includes."""
_LOOKALIKES: Final = dict(
    zip(
        "АВЕЗІЈКМНОРСТУХЅаеорсухіјѕһԁԛԝѵΑΒΕΖΗΙΚΜΝΟΡΤΥΧον",  # noqa: RUF001 - this is what they are
        "ABE3IJKMHOPCTYXSaeopcyxijshdqwvABEZHIKMNOPTYXov",
        strict=True,
    )
)
"""Cyrillic and Greek letters that look like Latin ones, by Unicode's confusables.txt."""
_BETWEEN: Final = re.compile(r"[\d_.\-]+")


def normal(name: str) -> str:
    """Return a name in normal form C, in which it is compared and stored."""
    return unicodedata.normalize("NFC", name)


def folded(name: str) -> str:
    """Return what is the same for two spellings of one name.

    >>> folded("Straße") == folded("STRASSE"), folded("Å") == folded("å")
    (True, True)
    """
    return normal(name).casefold()


@lru_cache(maxsize=65_536)
def fault_of_identifier(name: str) -> str | None:
    """Return why a column, a stream in SQL or a parameter cannot have this name; None if it can.

    >>> fault_of_identifier("größe"), fault_of_identifier("_x"), fault_of_identifier("1a")
    (None, None, 'a name does not begin with a digit')
    """
    if name[:1].isdecimal():
        return "a name does not begin with a digit"
    return _fault(name, "")


@lru_cache(maxsize=65_536)
def fault_of_name(name: str) -> str | None:
    """Return why no part of a topic can have this name; None if it can.

    >>> fault_of_name("7.große-straße"), fault_of_name("a/b")
    (None, "'/' is no letter")
    """
    if name[:1] in (".", "-") or name[-1:] in (".", "-"):
        return "a name begins and ends with a letter, a digit or _"
    return _fault(name, ".-")


def is_identifier(name: str) -> bool:
    """Return whether a column may have this name."""
    return fault_of_identifier(name) is None


def _fault(name: str, more: str) -> str | None:
    if not name:
        return "it is empty"
    if len(name) > LONGEST_NAME:
        return f"it has more than {LONGEST_NAME} characters"
    if name.isascii() and name.replace("_", "a").translate(_PLAIN if more else {}).isalnum():
        return None
    found = next((why for place, letter in enumerate(name) if (why := _fault_of_letter(letter, more, place))), None)
    if found is not None or name.isascii():
        return found
    if len(name.encode()) > MOST_BYTES:
        return f"it has more than {MOST_BYTES} bytes in UTF-8"
    if not unicodedata.is_normalized("NFC", name):
        return "it is not in Unicode's normal form C"
    return _mixed(name)


_PLAIN = str.maketrans(".-", "aa")


def _fault_of_letter(letter: str, more: str, place: int) -> str | None:
    if letter in more or (letter.isascii() and letter.isdigit()):
        return None
    if letter in _INVISIBLE:
        return f"U+{ord(letter):04X} in it cannot be seen"
    if not f"a{letter}".isidentifier():
        return f"{letter!r} is no letter" if letter.isprintable() else f"U+{ord(letter):04X} in it is no letter"
    if not place and not letter.isidentifier() and not letter.isdecimal():
        return f"it begins with U+{ord(letter):04X}, which belongs to a letter before it"
    plain = unicodedata.normalize("NFKC", letter)
    form = unicodedata.decomposition(letter).partition(">")[0]
    if form.startswith("<") and (form != "<compat" or any(map(str.isascii, plain))):
        return f"{letter!r} is another form of {plain!r}"
    return None


def _mixed(name: str) -> str | None:
    """Return which letter could be taken for a Latin one, because Latin ones stand beside it."""
    for part in _BETWEEN.split(name):
        if any(letter.isascii() for letter in part):
            for letter in part:
                if letter in _LOOKALIKES:
                    script = unicodedata.name(letter).partition(" ")[0].title()
                    return f"the {script} {letter!r} among Latin letters looks like {_LOOKALIKES[letter]!r}"
    return None
