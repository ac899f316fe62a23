"""The keys under which Spark knows the buckets, chosen so that each of its partitions has equally many of them.

Spark divides keys among its partitions by their hash: of four buckets under the keys 0 to 3, one of two partitions gets
three, and a micro-batch waits for it. Under the keys 1 to 4, each gets two.
"""

from __future__ import annotations

_MASK = 0xFFFFFFFF
_SEED = 42
KEYS_TRIED = 1_000


def first_key(buckets: int, partitions: int) -> int:
    """Return the key of bucket 0; the others follow. It is stored with the state: it must never change for a folder.

    Examples
    --------
    >>> first_key(4, 2)
    1
    """

    def most(first: int) -> int:
        numbers = [partition_of(first + bucket, partitions) for bucket in range(buckets)]
        return max(numbers.count(number) for number in set(numbers))

    return min(range(KEYS_TRIED), key=most)


def partition_of(key: int, partitions: int) -> int:
    """Return the partition in which Spark puts a key: Murmur3 of its four bytes."""
    mixed = _rotated(key * 0xCC9E2D51 & _MASK, 15) * 0x1B873593 & _MASK
    found = (_rotated(_SEED ^ mixed, 13) * 5 + 0xE6546B64 & _MASK) ^ 4
    found = (found ^ found >> 16) * 0x85EBCA6B & _MASK
    found = (found ^ found >> 13) * 0xC2B2AE35 & _MASK
    found ^= found >> 16
    signed = found - (1 << 32) if found >> 31 else found
    return signed % partitions


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> (32 - bits)) & _MASK
