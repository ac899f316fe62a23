"""Suggestions for mistyped words. No suggestion is better than an absurd one."""

from __future__ import annotations

from collections.abc import Iterable

SWAPPED, LEFT_OUT, EXCHANGED = 8, 9, 10
"""Costs of typing errors: two letters swapped, one left out or doubled, one replaced by another."""
SHORT, LONGER, LONG = 2, 6, 9
"""Lengths: words up to the first allow only the cheaper errors; from the second and third on, two and three errors."""
SHORTEST_BEGINNING = 3
"""Letters from which on a word may be the beginning of another."""
LONGEST_WORD = 64
MOST_MEANT = 2
"""Most words that are suggested when several are equally close."""


def closest(word: str, known: Iterable[str]) -> tuple[str, ...]:
    """Return the words of `known` nearest to `word`, without regard to case; none if `word` is known, or none is near.

    Of several words (``GROUP BY``) the first one counts.

    >>> closest("FORM", ["FROM", "FOR", "WHERE"])
    ('FROM',)
    >>> closest("temp", ["sensor", "temperature"])
    ('temperature',)
    >>> closest("with", ["WITHIN", "WITH"]), closest("sine", ["min", "since of"])
    ((), ('since of',))
    """
    folded = word.casefold()
    by_first = {candidate.casefold().split(" ")[0] or candidate: candidate for candidate in known}
    if not folded or len(folded) > LONGEST_WORD or folded in by_first:
        return ()
    most = _allowed(folded)
    costs = {candidate: cost for first, candidate in by_first.items() if (cost := _cost(folded, first, most)) <= most}
    least = min(costs.values(), default=0)
    if costs:
        return tuple(candidate for candidate, cost in costs.items() if cost == least)
    beginnings = [candidate for first, candidate in by_first.items() if first.startswith(folded)]
    return tuple(beginnings) if len(folded) >= SHORTEST_BEGINNING and len(beginnings) == 1 else ()


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """Return a hint that names the closest of `known`, without regard to case, or None if none is close.

    >>> did_you_mean("speeed", ["speed", "lane"])
    'did you mean speed?'
    >>> did_you_mean("altitude", ["speed", "lane"]) is None
    True
    """
    found = closest(word, known)
    return f"did you mean {' or '.join(found)}?" if 0 < len(found) <= MOST_MEANT else None


def _allowed(word: str) -> int:
    if len(word) <= SHORT:
        return LEFT_OUT if len(word) == SHORT else 0
    return EXCHANGED * (1 + (len(word) >= LONGER) + (len(word) >= LONG))


def _cost(word: str, other: str, most: int) -> int:
    """Return the cost of turning one word into another (optimal string alignment); more than `most` if it is higher."""
    if abs(len(word) - len(other)) * LEFT_OUT > most:
        return most + 1
    before: list[int] = []
    row = [LEFT_OUT * place for place in range(len(other) + 1)]
    for i, letter in enumerate(word, start=1):
        above, row = row, [LEFT_OUT * i]
        for j, wanted in enumerate(other, start=1):
            cost = min(above[j] + LEFT_OUT, row[-1] + LEFT_OUT, above[j - 1] + (EXCHANGED if letter != wanted else 0))
            if i > 1 and j > 1 and letter == other[j - 2] and word[i - 2] == wanted and letter != wanted:
                cost = min(cost, before[j - 2] + SWAPPED)
            row.append(cost)
        before = above
    return row[-1]
