"""Patterns of timestamps: the specifiers of STRFTIME, and those of DATE_FORMAT and TO_CHAR that mean the same. Pure."""

from __future__ import annotations

import re

SPECIFIERS = "YmdHIMSfpjaAbBuGVFT%"
"""What may stand behind % in a pattern of STRFTIME."""
LONGEST_PATTERN = 200
"""Characters of a pattern."""

_OF_DATE_FORMAT = {
    "yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "hh": "%I", "mm": "%M", "ss": "%S", "SSSSSS": "%f", "a": "%p",
    "DDD": "%j", "EEE": "%a", "EEEE": "%A", "MMM": "%b", "MMMM": "%B",
}  # fmt: skip
_OF_TO_CHAR = {
    "YYYY": "%Y", "MM": "%m", "DD": "%d", "HH24": "%H", "HH12": "%I", "HH": "%I", "MI": "%M", "SS": "%S", "US": "%f",
    "AM": "%p", "PM": "%p", "DDD": "%j", "IYYY": "%G", "IW": "%V", "ID": "%u", "Dy": "%a", "Mon": "%b",
}  # fmt: skip
_IN_QUOTES = re.compile(r"'(?P<text>(?:[^']|'')*)'")
"""Text of DATE_FORMAT. Two quotes are one, in it and alone."""
_IN_DOUBLE_QUOTES = re.compile(r'"(?P<text>(?:[^"\\]|\\.)*)"|\\(?P<quote>")', re.DOTALL)
"""Text of TO_CHAR: a backslash makes text of what is behind it; outside, of a quote only."""
_WORD = re.compile(r"[A-Za-z]+")
_REPEATED = re.compile(r"([A-Za-z])\1*")
_PIECE = re.compile("|".join(sorted(_OF_TO_CHAR, key=len, reverse=True)))


class PatternError(ValueError):
    """A part of a pattern that means nothing here."""

    def __init__(self, part: str, known: str) -> None:
        super().__init__(part)
        self.part = part
        self.known = known


def of_strftime(pattern: str) -> str:
    """Return a pattern of STRFTIME, all of whose specifiers there are.

    Raises
    ------
    PatternError
        If it has another one.
    """
    for found in re.finditer("%(.?)", pattern, re.DOTALL):
        if not found[1] or found[1] not in SPECIFIERS:
            raise PatternError(found[0], ", ".join(f"%{each}" for each in SPECIFIERS))
    return pattern


def of_date_format(pattern: str) -> str:
    """Return the pattern of STRFTIME that means the same as one of DATE_FORMAT, which Java's rules define.

    >>> of_date_format("yyyy-MM-dd'T'HH:mm"), of_date_format("hh 'o''clock'")
    ('%Y-%m-%dT%H:%M', "%I o'clock")

    Raises
    ------
    PatternError
        If it has letters that mean nothing here.
    """
    return _translated(pattern, _IN_QUOTES, _REPEATED, _OF_DATE_FORMAT)


def of_to_char(pattern: str) -> str:
    """Return the pattern of STRFTIME that means the same as one of TO_CHAR, which PostgreSQL's rules define.

    >>> of_to_char('YYYY-MM-DD"T"HH24:MI')
    '%Y-%m-%dT%H:%M'

    Raises
    ------
    PatternError
        If it has letters that mean nothing here.
    """
    return _translated(pattern, _IN_DOUBLE_QUOTES, _PIECE, _OF_TO_CHAR)


def _translated(pattern: str, quoted: re.Pattern[str], piece: re.Pattern[str], known: dict[str, str]) -> str:
    written: list[str] = []
    place = 0
    while place < len(pattern):
        letter = pattern[place]
        if text := quoted.match(pattern, place):
            written.append(_text_of(text).replace("%", "%%"))
            place = text.end()
        elif letter == quoted.pattern[0]:
            raise PatternError(pattern[place:], ", ".join(known))
        elif _WORD.match(letter):
            found = piece.match(pattern, place)
            if found is None or found[0] not in known:
                raise PatternError(found[0] if found else letter, ", ".join(known))
            written.append(known[found[0]])
            place = found.end()
        else:
            written.append("%%" if letter == "%" else letter)
            place += 1
    return "".join(written)


def _text_of(quoted: re.Match[str]) -> str:
    if quoted.re is _IN_QUOTES:
        return quoted["text"].replace("''", "'") or "'"
    return quoted["quote"] or re.sub(r"\\(.)", r"\1", quoted["text"], flags=re.DOTALL)
