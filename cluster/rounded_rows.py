"""Texts of rows, compared: reals that have been computed in another order differ in their last digits only."""

from __future__ import annotations

from typing import Any

import msgspec

SAME_DIGITS = 12
"""Sums of reals that have been added up in another order are equal in so many digits."""


def rounded(row: str) -> str:
    """Return a text that is equal for rows that are equal but for the last digits of reals.

    Parameters
    ----------
    row
        A row as JSON.

    Examples
    --------
    >>> rounded('{"k":1,"total":0.30000000000000004}')
    '{"k":1,"total":0.3}'
    """
    if "." not in row and "e" not in row:
        return row
    try:
        return msgspec.json.encode(_rounded(msgspec.json.decode(row))).decode()
    except (msgspec.DecodeError, RecursionError):
        return row


def _rounded(value: Any) -> Any:
    match value:
        case float():
            return float(f"{value:.{SAME_DIGITS}g}")
        case dict():
            return {name: _rounded(each) for name, each in value.items()}
        case list():
            return [_rounded(each) for each in value]
        case _:
            return value
