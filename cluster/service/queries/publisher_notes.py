"""Warnings about clauses that change nothing, as devices of a stream publish by their own rules. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from protocols.wire.catalog import DeviceEntry, MoteEntry
from protocols.wire.demands import QueryDemand

EXAMPLES = 3
"""Devices that a warning names."""


def publishers_of(entries: Iterable[MoteEntry], streams: Iterable[str]) -> dict[str, list[DeviceEntry]]:
    """Return the devices that publish by their own rules, of those of some streams, by stream.

    Parameters
    ----------
    entries
        Of the catalog.
    streams
        Names.
    """
    wanted = frozenset(streams)
    found: dict[str, list[DeviceEntry]] = {}
    for entry in entries:
        if isinstance(entry, DeviceEntry) and entry.publishes and entry.stream in wanted:
            found.setdefault(entry.stream, []).append(entry)
    return {stream: sorted(found[stream], key=lambda entry: (entry.mote, entry.proxy)) for stream in sorted(found)}


def publisher_warnings(
    demands: Mapping[str, Sequence[QueryDemand]], publishers: Mapping[str, Sequence[DeviceEntry]]
) -> Iterator[str]:
    """Yield a warning for each clause of a query, and each stream, in which it does nothing for some devices.

    Parameters
    ----------
    demands
        What the query demands, by stream.
    publishers
        The devices that publish by their own rules, by stream.
    """
    for stream, devices in publishers.items():
        of_stream = demands.get(stream, ())
        hints = [
            word
            for word, given in (
                ("AT LEAST EVERY", any(each.slowest_us for each in of_stream)),
                ("LIFETIME", any(each.lifetime_us for each in of_stream)),
                ("WITHIN", any(each.tolerances for each in of_stream)),
            )
            if given
        ]
        if hints:
            does = "does" if len(hints) == 1 else "do"
            yield f"{_listed(hints)} {does} nothing for {_named(devices)} of {stream}: {_they(devices)} by own rules"
        if not any(each.completeness is not None for each in of_stream):
            continue
        recorded = [each for each in devices if not each.driver]
        uncounted = [each for each in devices if each.driver and not each.expected_every_us]
        if recorded:
            replay = "it replays" if len(recorded) == 1 else "they replay"
            yield (
                f"COMPLETENESS is NULL for {_named(recorded)} of {stream}: {replay} a recording as it is, without a "
                "rate (fjord motes run --resample gives it one)"
            )
        if uncounted:
            yield (
                f"COMPLETENESS is NULL for {_named(uncounted)} of {stream}: {_they(uncounted)} by own rules, and the "
                "driver does not say how often (expected_every)"
            )


def _they(devices: Sequence[DeviceEntry]) -> str:
    return "it publishes" if len(devices) == 1 else "they publish"


def _named(devices: Sequence[DeviceEntry]) -> str:
    more = len(devices) - EXAMPLES
    return _listed([*(each.mote for each in devices[:EXAMPLES]), *([f"{more:,} more"] if more > 0 else [])])


def _listed(words: Sequence[str]) -> str:
    """Return words as a list.

    >>> _listed(["a"]), _listed(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return " and ".join([*([", ".join(words[:-1])] if len(words) > 1 else []), words[-1]])
