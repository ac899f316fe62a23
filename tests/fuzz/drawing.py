"""Frames and bytes drawn at random: values as large, small, long or odd as a format allows, and bytes that it does not.

drawn(Packet, dice)          a frame that every decoder accepts
damaged(payload, dice)       bytes that were such a frame
"""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING, Any

from msgspec import inspect

from protocols.errors import ProtocolError
from protocols.wire.frames import VERSION

if TYPE_CHECKING:
    from random import Random

    import msgspec

NAMES = ("m1", "a", "Z9", "speed", "x" * 32)
"""Names that match all patterns, those of fields and streams, too."""
REALS = (0.0, -0.0, 1.5, math.inf, -math.inf, math.nan, 5e-324, 1.7976931348623157e308, -1e300)
TEXTS = ("", "a", "\0", "\N{GRINNING FACE}", "'; DROP", "nan", "\u202e", "x" * 1024)
MOST_ITEMS = 3
_BOMBS = (
    b"\xdd\xff\xff\xff\xff",
    b"\xdf\xff\xff\xff\xff",
    b"\xc6\xff\xff\xff\xff",
    b"\x91" * 200,
    b"\xcf" + b"\xff" * 8,
)
"""MessagePack of huge arrays, maps, byte strings, of deep nesting, and the largest integer."""


def drawn(kind: type[msgspec.Struct], dice: Random) -> Any:
    """Return a frame of a kind."""
    return _value(inspect.type_info(kind), dice)


def _value(kind: inspect.Type, dice: Random) -> Any:  # noqa: C901 - one case per kind of type
    match kind:
        case inspect.Metadata():
            return _value(kind.type, dice)
        case inspect.StructType():
            return _struct(kind, dice)
        case inspect.UnionType():
            return _value(dice.choice(kind.types), dice)
        case inspect.IntType():
            low = -(2**63) if kind.ge is None else kind.ge
            high = (2**64 if kind.lt is None else kind.lt) - 1 if kind.le is None else kind.le
            few = (low, high, 0, 1, 2, 2**31, 10**6, 2**62, 2**63 - 1, 2**63, dice.randrange(low, high + 1))
            return dice.choice([each for each in few if low <= each <= high])
        case inspect.FloatType():
            return dice.choice([each for each in (*REALS, dice.random()) if _within(each, kind)])
        case inspect.StrType(pattern=None):
            longest = 10_000 if kind.max_length is None else kind.max_length
            return dice.choice([each for each in TEXTS if (kind.min_length or 0) <= len(each) <= longest])
        case inspect.StrType():
            return dice.choice([each for each in NAMES if each.islower() or "A-Z" in (kind.pattern or "")])
        case inspect.BoolType():
            return dice.random() < 0.5
        case inspect.NoneType():
            return None
        case inspect.BytesType():
            return dice.choice([b"", b"\0" * 8, b"\xff" * 64])
        case inspect.EnumType():
            return dice.choice(list(kind.cls))
        case inspect.LiteralType():
            return dice.choice(kind.values)
        case inspect.VarTupleType() | inspect.ListType():
            most = min(MOST_ITEMS, MOST_ITEMS if kind.max_length is None else kind.max_length)
            count = dice.randint(min(kind.min_length or 0, most), most)
            return tuple(_value(kind.item_type, dice) for _ in range(count))
        case inspect.TupleType():
            return tuple(_value(each, dice) for each in kind.item_types)
        case inspect.DictType():
            count = dice.randrange(MOST_ITEMS)
            return {_value(kind.key_type, dice): _value(kind.value_type, dice) for _ in range(count)}
        case _:
            raise AssertionError(f"nothing draws {kind}")


def _struct(kind: inspect.StructType, dice: Random) -> Any:
    """Return a frame or a part of one, whose values go together."""
    while True:
        fields = {field.name: _value(field.type, dice) for field in kind.fields if _is_given(field, dice)}
        with contextlib.suppress(ProtocolError):
            return kind.cls(**fields | ({"version": VERSION} if "version" in fields else {}))


def _is_given(field: inspect.Field, dice: Random) -> bool:
    return field.required or dice.random() < 0.5


def _within(number: float, kind: inspect.FloatType) -> bool:
    if kind.ge is None and kind.le is None and kind.gt is None and kind.lt is None:
        return True
    return (
        (kind.ge is None or number >= kind.ge)
        and (kind.le is None or number <= kind.le)
        and (kind.gt is None or number > kind.gt)
        and (kind.lt is None or number < kind.lt)
    )


def damaged(payload: bytes, dice: Random) -> bytes:
    """Return bytes with a few damages: bits flipped, parts cut out, doubled or replaced, sizes that are too large."""
    found = bytearray(payload)
    for _ in range(dice.choice((1, 1, 1, 2, 4))):
        at = dice.randrange(len(found) + 1)
        to = min(len(found), at + dice.choice((1, 2, 8, 64)))
        match dice.randrange(6):
            case 0 if at < len(found):
                found[at] ^= 1 << dice.randrange(8)
            case 1:
                del found[at:to]
            case 2:
                found[at:at] = found[at:to]
            case 3:
                found[at:at] = dice.choice(_BOMBS)
            case 4:
                found[at:to] = dice.randbytes(to - at)
            case _:
                del found[at:]
    return bytes(found)
