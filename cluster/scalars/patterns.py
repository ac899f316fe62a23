r"""Regular expressions: the syntax that all engines read alike, with the meaning of Flink, Spark and DuckDB.

    REGEXP_LIKE(sensor, '^\w+-(\d+)$')      computed by Polars as      ^[0-9A-Za-z_]+\-([0-9]+)$

A pattern is read here, so that a mistake is found when a query is accepted, and so that no engine decides how much
memory a pattern may take: what is repeated so many times counts so many times.
"""

from __future__ import annotations

import string
from dataclasses import dataclass
from functools import lru_cache
from typing import NoReturn

from cluster.errors import PlanError

LONGEST_PATTERN = 1_000
"""Characters."""
LARGEST_PATTERN = 2_000
"""Most characters and ranges in a pattern when everything is written as often as it is repeated."""
MOST_GROUPS = 50
"""In each other, and with a number."""
FOLDING = "(?i)"
"""Stands at the start of a pattern that takes upper and lower case alike."""

_CLASSES = {"d": "0-9", "w": "0-9A-Za-z_", "s": r"\t\n\x0C\r "}
_OTHERS = {"D": "[^0-9]", "W": "[^0-9A-Za-z_]", "S": r"[^\t\n\x0C\r ]"}
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r"}
_ANY_SIZE = 8
"""What ``.`` and a class of characters beyond ASCII count: UTF-8 has several bytes for these."""
_INSTEAD = {
    **dict.fromkeys("pPX", "write ranges: [a-zà-ÿ]"),
    "A": "write ^",
    **dict.fromkeys("zZ", "write $"),
    **dict.fromkeys("123456789k", "only a replacement can refer to a group"),
}


class PatternError(PlanError):
    """A regular expression that cannot be read, or is too large."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A regular expression.

    Parameters
    ----------
    regex
        In the syntax of Rust's regex crate.
    groups
        How many groups it has.
    """

    regex: str
    groups: int


@dataclass(frozen=True, slots=True)
class _Part:
    regex: str
    size: int = 1
    may_be_empty: bool = False


@lru_cache(maxsize=1_024)
def pattern_of(text: str) -> Pattern:
    r"""Return the pattern that a text is.

    >>> pattern_of(r"(?i)\d{2}-(\w|x)").regex
    '(?i)[0-9]{2}\\-([0-9A-Za-z_]|x)'

    Raises
    ------
    PatternError
        If it is none of FjordSQL, or too large.
    """
    folds = text.startswith(FOLDING)
    if len(text) - len(FOLDING) * folds > LONGEST_PATTERN:
        raise PatternError(f"a pattern has at most {LONGEST_PATTERN:,} characters")
    reader = _Reader(text.removeprefix(FOLDING), folds)
    whole = reader.alternatives()
    if reader.ahead:
        reader.refuse("this parenthesis was never opened", r"write \) for the character itself")
    return Pattern(FOLDING * folds + whole.regex, reader.groups)


class _Reader:
    def __init__(self, text: str, folds: bool) -> None:  # noqa: FBT001 - of one file
        self._text = text
        self._shift = len(FOLDING) * folds
        self._weight = 1 + folds
        self._place = 0
        self._depth = 0
        self.groups = 0

    @property
    def ahead(self) -> str:
        """The next character; empty at the end."""
        return self._text[self._place : self._place + 1]

    def refuse(self, reason: str, hint: str | None = None) -> NoReturn:
        """Raise the error about the place that has been reached."""
        place = min(self._place, max(len(self._text) - 1, 0)) + self._shift + 1
        raise PatternError(f"{reason}, at character {place} of the pattern", hint=hint)

    def alternatives(self) -> _Part:
        """Read sequences with ``|`` between them."""
        found = [self._sequence()]
        while self._taken("|"):
            found.append(self._sequence())
        size = sum(each.size for each in found) + len(found)
        return self._bounded(_Part("|".join(each.regex for each in found), size, any(e.may_be_empty for e in found)))

    def _taken(self, start: str) -> bool:
        taken = self._text.startswith(start, self._place)
        self._place += len(start) * taken
        return taken

    def _bounded(self, part: _Part) -> _Part:
        if part.size > LARGEST_PATTERN:
            reason = (
                f"with everything written as often as it is repeated, it has more than {LARGEST_PATTERN:,} characters"
            )
            raise PatternError(f"this pattern is too large: {reason}", hint="repeat less: {1,20}, or +")
        return part

    def _sequence(self) -> _Part:
        found: list[_Part] = []
        while self.ahead and self.ahead not in "|)":
            found.append(self._repeated())
        size = sum(each.size for each in found)
        return self._bounded(_Part("".join(e.regex for e in found), size, all(each.may_be_empty for each in found)))

    def _repeated(self) -> _Part:
        if self.ahead in "*+?{":
            self.refuse("there is nothing to repeat", f"write \\{self.ahead} for the character itself")
        for mark, regex in (("^", "^"), ("$", "$"), (r"\b", r"(?-u:\b)")):
            if self._taken(mark):
                if self.ahead and self.ahead in "*+?{":
                    self.refuse(f"{mark} is a place, which cannot be repeated")
                return _Part(regex, may_be_empty=True)
        one = self._one()
        if not self.ahead or self.ahead not in "*+?{":
            return one
        start, times, least = self._place, 1, 0
        if self._taken("{"):
            least, times = self._counts()
        elif not self._taken("?"):
            least = int(self.ahead == "+")
            self._place += 1
        repeated = self._text[start : self._place]
        if one.may_be_empty and repeated != "?":
            self._place = start
            self.refuse("what may be empty is repeated", "repeat a part that has a character at least")
        lazily = "?" * self._taken("?")
        if self.ahead and self.ahead in "*+?{":
            self.refuse("one part is repeated twice", "write parentheses: (a+)?")
        return self._bounded(_Part(one.regex + repeated + lazily, one.size * times + 1, one.may_be_empty or least == 0))

    def _counts(self) -> tuple[int, int]:
        """Read what follows a brace: the least number of times, and how many copies that makes."""
        least = self._number()
        most = least
        if self._taken(","):
            most = self._number() if self.ahead != "}" else least
        if not self._taken("}"):
            self.refuse("a brace is followed by how often something is repeated", r"a{2,5}, or \{ for the character")
        if most < least or most == 0:
            self._place -= 1
            self.refuse("this repeats nothing: the greatest number comes last", "a{2,5}")
        return least, most + 1

    def _number(self) -> int:
        start = self._place
        while self.ahead and self.ahead in string.digits:
            self._place += 1
        digits = self._text[start : self._place]
        if not digits:
            self.refuse("a brace is followed by how often something is repeated", r"a{2,5}, or \{ for the character")
        if len(digits) > len(str(LARGEST_PATTERN)):
            return LARGEST_PATTERN + 1
        return int(digits)

    def _one(self) -> _Part:
        if self.ahead == "(":
            return self._group()
        if self._taken("["):
            return self._class()
        if self._taken("."):
            return _Part(".", _ANY_SIZE)
        if self._taken("\\"):
            letter = self._escaped()
            if letter in _CLASSES:
                return _Part(f"[{_CLASSES[letter]}]", 4 * self._weight)
            return _Part(_OTHERS[letter], _ANY_SIZE) if letter in _OTHERS else _Part(_written(letter))
        letter = self.ahead
        self._place += 1
        return _Part(_quoted(letter), self._weight * len(letter.encode()))

    def _escaped(self) -> str:
        """Return the letter behind a backslash: one that stands for others, or a mark that stands for itself."""
        letter = self.ahead
        if not letter:
            self.refuse("a character was expected behind the last \\", "two of them stand for the character itself")
        if letter not in {*_CLASSES, *_OTHERS, *_CONTROLS, *string.punctuation}:
            self.refuse(f"\\{letter} is not part of FjordSQL's patterns", _INSTEAD.get(letter))
        self._place += 1
        return letter

    def _group(self) -> _Part:
        opened = self._place
        self._depth += 1
        self._place += 1
        kept = not self._taken("?:")
        if self.ahead == "?":
            hint = (
                "(?i) stands at the start" if self._taken(FOLDING[1:]) else "write (...), or (?:...) without a number"
            )
            self._place = opened
            self.refuse("a group of this kind is not part of FjordSQL's patterns", hint)
        self.groups += kept
        if max(self._depth, self.groups) > MOST_GROUPS:
            self._place = opened
            self.refuse(f"a pattern has at most {MOST_GROUPS} groups")
        inner = self.alternatives()
        if not self._taken(")"):
            self._place = opened
            self.refuse("this parenthesis is never closed", r"write \( for the character itself")
        self._depth -= 1
        if not inner.regex:
            self._place = opened
            self.refuse("there is nothing in this group", r"write \( and \) for the characters themselves")
        return _Part(f"({'' if kept else '?:'}{inner.regex})", inner.size + 2, inner.may_be_empty)

    def _class(self) -> _Part:
        opened = self._place - 1
        negated = "^" * self._taken("^")
        ranges: list[str] = []
        size = _ANY_SIZE * len(negated)
        while self.ahead != "]" or not ranges:
            if self.ahead in ("", "]"):
                self._place = opened
                self.refuse("this class is never closed, or empty", r"write \[ and \] for the characters themselves")
            if self.ahead == "[" or self._text.startswith("&&", self._place):
                self.refuse(
                    "a class within a class is not part of FjordSQL's patterns", r"write \[ and \& for the characters"
                )
            dash = self.ahead == "-" and self._text[self._place + 1 : self._place + 2] != "]"
            if dash and (ranges or self._text[self._place + 1 : self._place + 2] == "-"):
                self.refuse("a range begins and ends with one character", r"write \- for the character itself")
            found, weight = self._range()
            ranges.append(found)
            size += weight
        self._place += 1
        return _Part(f"[{negated}{''.join(ranges)}]", size)

    def _range(self) -> tuple[str, int]:
        """Read one part of a class, with what it counts."""
        start = self._place
        low, first = self._member()
        if first is None:
            if self.ahead == "-" and self._text[self._place + 1 : self._place + 2] != "]":
                self.refuse("a range begins and ends with one character", r"write \- for the character itself")
            return low, _ANY_SIZE
        after = self._text[self._place + 1 : self._place + 2]
        if self.ahead != "-" or after in ("", "]"):
            return low, self._weight * (1 if first.isascii() else _ANY_SIZE)
        self._place += 1
        high, last = self._member()
        if last is None or last < first:
            self._place = start
            self.refuse("a range goes from a character to one behind it", "[a-z]")
        return f"{low}-{high}", self._weight * (1 if last.isascii() else 4 * _ANY_SIZE)

    def _member(self) -> tuple[str, str | None]:
        """Read a character of a class, or a letter that stands for several; then there is no character."""
        if self._taken("\\"):
            letter = self._escaped()
            if letter in _CLASSES:
                return _CLASSES[letter], None
            if letter in _OTHERS:
                return _OTHERS[letter], None
            return _written(letter), _CONTROLS.get(letter, letter)
        letter = self.ahead
        self._place += 1
        return _quoted(letter), letter


def _written(letter: str) -> str:
    """Return the one character for which a letter or mark behind a backslash stands, as Rust writes it."""
    return f"\\{letter}" if letter in _CONTROLS else _quoted(letter)


def literal(text: str) -> str:
    r"""Return a pattern that matches a text and nothing else: ``a.b`` is ``a\.b``."""
    return "".join(f"\\{mark}" if mark in r"\.+*?()|[]{}^$" else mark for mark in text)


def _quoted(letter: str) -> str:
    return "\\" + letter if letter in r"\.+*?()|[]{}^$#&-~" else letter
