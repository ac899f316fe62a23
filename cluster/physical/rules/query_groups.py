"""Query groups: queries whose conditions are equal may share their rows."""

from __future__ import annotations

import hashlib
from functools import lru_cache

import msgspec

from cluster.operators.columns import Scalar, identity_of
from protocols.wire.streams import FieldType


class Fingerprint(msgspec.Struct, frozen=True):
    """A push-down fingerprint among conditions; its encoding must not change, since groups are digests of it."""

    sql: str
    type: FieldType = FieldType.TEXT


@lru_cache(maxsize=65_536)
def group_of(predicates: tuple[Scalar | Fingerprint | None, ...]) -> int:
    """Return a query group: a digest of the conditions on sources, which never changes; 0 for no condition."""
    if not any(predicates):
        return 0
    digest = hashlib.blake2b(identity_of(predicates), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1 or 1
