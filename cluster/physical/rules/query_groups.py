"""Query groups: queries whose conditions are equal may share their rows."""

from __future__ import annotations

import hashlib
from functools import lru_cache

import msgspec

from cluster.language.columns import Scalar, identity_of
from protocols.wire.streams import FieldType


class Form(msgspec.Struct, frozen=True):
    """The push-down fingerprint of what is reported, beside conditions; written as it always has been."""

    sql: str
    type: FieldType = FieldType.TEXT


@lru_cache(maxsize=65_536)
def group_of(predicates: tuple[Scalar | Form | None, ...]) -> int:
    """Return the number of conditions on sources: a digest of them, so that it is the same for ever; 0 for none."""
    if not any(predicates):
        return 0
    digest = hashlib.blake2b(identity_of(predicates), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1 or 1
