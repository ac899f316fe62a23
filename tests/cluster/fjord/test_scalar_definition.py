"""The definition of scalars in Python has the language's types."""

from __future__ import annotations

import pytest

from cluster.language.dialect import parse_scalar
from protocols.wire.streams import FieldType
from tests.cluster.fjord.scalar_definition import is_real
from tests.cluster.fjord.test_extreme_values import CALLS


@pytest.mark.parametrize(("text", "kind"), [call for calls in CALLS.values() for call in calls])
def test_what_gives_a_real_is_defined_as_one(text: str, kind: FieldType) -> None:
    columns = {letter: f'"{letter}"' for letter in "irsb"}
    assert is_real(parse_scalar(text.format(**columns))) is (kind is FieldType.REAL)
