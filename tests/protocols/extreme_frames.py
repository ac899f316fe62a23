"""Valid frames with values as large, small, long or odd as the format allows, for hypothesis."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from tests.fuzz.drawing import drawn

if TYPE_CHECKING:
    import msgspec


def frames(kind: type[msgspec.Struct]) -> st.SearchStrategy[Any]:
    """Draw frames of a kind."""
    return st.randoms(use_true_random=False).map(partial(drawn, kind))
