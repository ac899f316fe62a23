"""How many functions some work calls: a measure that depends on no clock."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class TooManyCallsError(BaseException):
    """Some work called more functions than it may; no code of ours may catch it."""


def calls(work: Callable[[], object], *, most: int | None = None) -> int:
    """Return how many functions are called, those of C among them.

    Raises
    ------
    TooManyCallsError
        As soon as there are more than `most`.
    """
    count = 0

    def seen(_frame: object, event: str, _argument: Any) -> None:
        nonlocal count
        count += event in {"call", "c_call"}
        if most is not None and count > most:
            raise TooManyCallsError

    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count
