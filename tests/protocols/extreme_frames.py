"""Valid frames with values as large, small, long or odd as the format allows."""

from __future__ import annotations

import math
from typing import Any

import msgspec
from hypothesis import strategies as st
from msgspec import inspect

NAMES = ("m1", "a", "Z9", "speed", "x" * 32)
"""Names that match all patterns, those of fields and streams, too."""
REALS = (0.0, -0.0, 1.5, math.inf, -math.inf, math.nan, 5e-324, 1.7976931348623157e308, -1e300)
TEXTS = ("", "a", "\0", "\N{GRINNING FACE}", "'; DROP", "nan", "\u202e", "x" * 1024)
MOST_ITEMS = 3


def frames(kind: type[msgspec.Struct]) -> st.SearchStrategy[Any]:
    """Draw frames of a kind."""
    return _values(inspect.type_info(kind))


def _values(kind: inspect.Type) -> st.SearchStrategy[Any]:  # noqa: C901 - one case per kind of type
    match kind:
        case inspect.Metadata():
            return _values(kind.type)
        case inspect.StructType():
            return _structs(kind)
        case inspect.UnionType():
            return st.one_of(*map(_values, kind.types))
        case inspect.IntType():
            low = -(2**63) if kind.ge is None else kind.ge
            high = 2**64 - 1 if kind.le is None else kind.le
            few = {low, high, *(each for each in (0, 1, 2**31, 2**63 - 1, 2**63, 10**6) if low <= each <= high)}
            return st.sampled_from(sorted(few))
        case inspect.FloatType():
            fits = [each for each in REALS if _within(each, kind)]
            return st.sampled_from(fits)
        case inspect.StrType(pattern=None):
            longest = 10_000 if kind.max_length is None else kind.max_length
            return st.sampled_from([each for each in TEXTS if (kind.min_length or 0) <= len(each) <= longest])
        case inspect.StrType():
            return st.sampled_from([each for each in NAMES if each.islower() or "A-Z" in (kind.pattern or "")])
        case inspect.BoolType():
            return st.booleans()
        case inspect.NoneType():
            return st.none()
        case inspect.BytesType():
            return st.sampled_from([b"", b"\0" * 9, b"\xff" * 64])
        case inspect.EnumType():
            return st.sampled_from(list(kind.cls))
        case inspect.LiteralType():
            return st.sampled_from(kind.values)
        case inspect.VarTupleType() | inspect.ListType():
            most = min(MOST_ITEMS, MOST_ITEMS if kind.max_length is None else kind.max_length)
            return st.lists(_values(kind.item_type), min_size=min(kind.min_length or 0, most), max_size=most).map(tuple)
        case inspect.TupleType():
            return st.tuples(*map(_values, kind.item_types))
        case inspect.DictType():
            return st.dictionaries(_values(kind.key_type), _values(kind.value_type), max_size=MOST_ITEMS)
        case _:
            raise AssertionError(f"nothing draws {kind}")


def _within(number: float, kind: inspect.FloatType) -> bool:
    if kind.ge is None and kind.le is None and kind.gt is None and kind.lt is None:
        return True
    return (
        (kind.ge is None or number >= kind.ge)
        and (kind.le is None or number <= kind.le)
        and (kind.gt is None or number > kind.gt)
        and (kind.lt is None or number < kind.lt)
    )


def _structs(kind: inspect.StructType) -> st.SearchStrategy[Any]:
    fields = {field.name: _values(field.type) for field in kind.fields}
    if "version" in fields:
        fields["version"] = st.just(1)
    drawn = st.fixed_dictionaries(fields)

    def make(values: dict[str, Any]) -> Any:
        try:
            return kind.cls(**values)
        except Exception as error:
            if isinstance(error, TypeError):
                raise
            return None  # the format allows it, but another check does not

    return drawn.map(make).filter(lambda each: each is not None)
