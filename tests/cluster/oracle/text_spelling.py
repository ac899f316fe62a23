"""How one and the same thing can be written: names, numbers, durations, and the setting of words in a text."""

from __future__ import annotations

import random
import re
import unicodedata
from decimal import Decimal

UNITS: dict[str, tuple[Decimal, tuple[str, ...]]] = {
    "microsecond": (Decimal(1), ("MICROSECOND", "MICROSECONDS", "US")),
    "millisecond": (Decimal(10**3), ("MILLISECOND", "MILLISECONDS", "MS")),
    "second": (Decimal(10**6), ("SECOND", "SECONDS", "SEC", "S")),
    "minute": (Decimal(6 * 10**7), ("MINUTE", "MINUTES", "MIN")),
    "hour": (Decimal(36 * 10**8), ("HOUR", "HOURS", "H")),
    "day": (Decimal(864 * 10**8), ("DAY", "DAYS", "D")),
    "week": (Decimal(6048 * 10**8), ("WEEK", "WEEKS")),
}
FREQUENCIES: dict[str, Decimal] = {"HZ": Decimal(1), "KHZ": Decimal(1000)}
RESERVED = frozenset({"from", "case", "select", "order", "group", "window", "union"})
"""Names of columns and streams of ours that are words of the language."""
MOST_DIGITS = 24


def duration(dice: random.Random, microseconds: int) -> str:
    """Return a duration, in any unit in which it is a finite decimal fraction."""
    ways = []
    for size, names in UNITS.values():
        amount = Decimal(microseconds) / size
        if amount * size == microseconds and len(amount.as_tuple().digits) < MOST_DIGITS:
            ways += [(amount, name) for name in names]
    amount, name = dice.choice(ways)
    return f"{_decimal(dice, amount)} {name}"


def rate(dice: random.Random, period: int) -> str | None:
    """Return the frequency with a period in microseconds; None if it is no finite fraction."""
    hertz = Decimal(10**6) / period
    if hertz * period != 10**6:
        return None
    name = dice.choice(sorted(FREQUENCIES))
    return f"{_decimal(dice, hertz / FREQUENCIES[name])} {name}"


def _decimal(dice: random.Random, amount: Decimal) -> str:
    plain = f"{amount.normalize():f}"
    ways = [plain]
    if "." not in plain:
        ways += [f"{plain}.0"]
    elif plain.startswith("0."):
        ways += [f"{plain}0"]
    if amount and abs(amount.adjusted()) > 2:
        ways += [f"{amount.normalize():e}"]
    return dice.choice(ways)


def name(dice: random.Random, plain: str, *, exactly: bool = False) -> str:
    """Return a name, perhaps in quotes, in another case or normal form; `exactly` where it is given, not used."""
    quoted = plain.casefold() in RESERVED or dice.random() < 0.15
    if not exactly and dice.random() < 0.15:
        plain = dice.choice((plain.upper(), plain.lower(), plain.swapcase()))
    if quoted or not exactly:  # Fjord has all names in normal form C
        plain = unicodedata.normalize("NFD", plain)
    return f'"{plain}"' if quoted else plain


def text(value: str) -> str:
    """Return a text in single quotes."""
    return "'" + value.replace("'", "''") + "'"


_TOKENS = re.compile(
    r"(?:GROUP|PARTITION|ORDER) BY|DOUBLE PRECISION|'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|"
    r"[^\W\d](?:\w|[\u0300-\u036f])*|\s+|.",
    re.DOTALL,
)
_KEYWORD = re.compile(r"[A-Z][A-Z0-9_ ]+|[SHD]")
COMMENTS = ("/* from */", "-- SELECT 'a\n", "/* -- ' */", "--\n", '/* \n" */')


def set_in(words: str, seed: int | None) -> str:
    """Return a text with its words in other cases, other spaces between them, and comments; None leaves it alone."""
    if seed is None:
        return words
    dice = random.Random(seed)
    lower, spaces, comments = dice.random(), dice.choice((0, 0.1, 0.4)), dice.choice((0, 0, 0.03))
    found = []
    for token in _TOKENS.findall(words):
        if token.isspace():
            space = dice.choice(("  ", "\n", "\t", " \r\n ")) if dice.random() < spaces else " "
            found.append(f" {dice.choice(COMMENTS)} " if dice.random() < comments else space)
        elif _KEYWORD.fullmatch(token) and dice.random() < lower:
            found.append(dice.choice((token.lower(), token.lower(), token.title())))
        else:
            found.append(token)
    end = dice.choice(("", "", "", ";", " ;", "\n", " -- the end", "; "))
    return "".join(found) + end
