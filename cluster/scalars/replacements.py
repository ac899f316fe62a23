"""What REGEXP_REPLACE writes in the places of matches: texts, and groups of them."""

from __future__ import annotations

import string

from cluster.scalars.patterns import PatternError

LONGEST_REPLACEMENT = 1_000
"""Characters."""


def replacement_of(text: str, groups: int) -> tuple[str | int, ...]:
    r"""Return the parts of a replacement: texts, and numbers of groups.

    >>> replacement_of(r"\2 of \1\\", 2)
    (2, ' of ', 1, '\\')

    Raises
    ------
    PatternError
        If it cannot be read, or refers to a group that there is not.
    """
    if len(text) > LONGEST_REPLACEMENT:
        raise PatternError(f"a replacement has at most {LONGEST_REPLACEMENT:,} characters")
    parts: list[str | int] = []
    written = ""
    letters = iter(enumerate(text))
    for place, letter in letters:
        after = text[place + 1 : place + 2]
        if letter == "$" and after and after in string.digits + "{":
            raise PatternError(
                f"a group is written \\{after} in a replacement", hint=r"\$ stands for the character itself"
            )
        if letter != "\\":
            written += letter
        elif after and after in "\\$":
            written += next(letters)[1]
        elif after and after in string.digits:
            if int(after) > groups:
                raise PatternError(f"the pattern has {_counted(groups)}", hint=r"\1 is the first, \0 the whole match")
            parts += [*([written] if written else ()), int(next(letters)[1])]
            written = ""
        else:
            raise PatternError(
                "a number was expected behind \\", hint=r"\1 is the first group, \\ the character itself"
            )
    return (*parts, *([written] if written else ()))


def _counted(groups: int) -> str:
    return {0: "no groups", 1: "one group"}.get(groups, f"{groups} groups")
