"""Names of other systems, as names that Fjord allows: unique, and the same after every restart."""

from __future__ import annotations

import hashlib
import re

from protocols.errors import TopicError
from protocols.wire.names import LONGEST_NAME
from protocols.wire.streams import RESERVED_PREFIX
from protocols.wire.topics import check_part_name

_HASH_LETTERS = 8


class NameTable:
    """Names of other systems, and their names in Fjord.

    A name that all parts may have stays as it is. Any other gets a hash of itself at its end, so that ``hall/1`` and
    ``hall 1`` differ, whichever was seen first; so do letters beyond ASCII, as before names could have them.

    Examples
    --------
    >>> names = NameTable()
    >>> names.name_of("kitchen"), names.name_of("Upper floor/bed room")
    ('kitchen', 'Upper-floor-bed-room-3a228335')
    """

    def __init__(self, *, prefix: str = "") -> None:
        self._prefix = prefix
        self._given: dict[str, str] = {}
        self._used: set[str] = set()

    def name_of(self, original: str) -> str:
        """Return the name of `original`, always the same one."""
        known = self._given.get(original)
        if known is not None:
            return known
        prefixed, name = self._prefix + original, self.likely(original)
        letters = _HASH_LETTERS
        while name in self._used:  # another name was chosen to look like this hash
            letters += 1
            name = hashed(prefixed, letters)
        self._given[original] = name
        self._used.add(name)
        return name

    def likely(self, original: str) -> str:
        """Return the name of `original`, or the one that it will most likely get; nothing is remembered."""
        prefixed = self._prefix + original
        return self._given.get(original) or (prefixed if _allowed(prefixed) else hashed(prefixed))

    def forget(self, original: str) -> None:
        """Forget a name that was given in vain."""
        self._used.discard(self._given.pop(original, ""))

    def known(self, original: str) -> str | None:
        """Return the name of `original` if it was given one."""
        return self._given.get(original)


def hashed(text: str, letters: int = _HASH_LETTERS) -> str:
    """Return an allowed name made of `text` and the first letters of its hash."""
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:letters]
    plain = re.sub(r"[^A-Za-z0-9_.]+", "-", text)[: LONGEST_NAME - letters - 1].strip("-_.")
    return f"{plain}-{digest}" if plain else digest


def identifier(text: str) -> str:
    """Return `text` as a name that SQL allows without quotes: letters, digits and ``_``, beginning with a letter.

    Examples
    --------
    >>> identifier("SNZB-02"), identifier("1/2 width"), identifier("fjord_x")
    ('SNZB_02', 'x_1_2_width', 'x_fjord_x')
    """
    plain = re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_")
    if not plain or not plain[0].isalpha() or plain.casefold().startswith(RESERVED_PREFIX):
        plain = f"x_{plain}".rstrip("_")
    return plain[:LONGEST_NAME].rstrip("_")


def _allowed(name: str) -> bool:
    try:
        check_part_name(name)
    except TopicError:
        return False
    return True
