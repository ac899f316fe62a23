"""Whether a mote's announcement can be accepted: its proxy, its properties, its stream. Pure."""

from __future__ import annotations

from collections.abc import Callable

from protocols.errors import SchemaError
from protocols.wire.packets import Announcement
from protocols.wire.streams import StreamSchema
from proxy.fleet.fleet_members import FleetMembers
from proxy.fleet.neighbours import Neighbours
from proxy.records.decoding import check_properties


def problem_of(
    announcement: Announcement,
    members: FleetMembers,
    neighbours: Neighbours,
    same_driver: Callable[[str, str], bool] = lambda *_: False,
) -> tuple[str, str] | None:
    """Return why an announcement cannot be accepted, as a metric label and a sentence; None if it can.

    Parameters
    ----------
    announcement
        Of a mote.
    members
        Motes and streams of this proxy; the announced stream is added to them if there is room.
    neighbours
        What is known of other proxies.
    same_driver
        Returns whether two motes are devices of one driver.
    """
    name, mote = announcement.stream.name, announcement.mote
    # A mote with a key has that of one proxy: where it can be opened it is ours, whatever the entries of others claim.
    other = None if members.sealed(mote) else neighbours.claimant(mote, ours=members.has(mote), stream=name)
    if other is not None:
        return "two_proxies", f"mote {mote!r} is in the catalog of proxy {other!r}, which is online"
    try:
        check_properties(announcement)
    except SchemaError as error:
        return "properties", str(error)
    if announcement.replays and (live := members.live_mote(name, mote)):
        return "replay", f"mote {mote!r} replays a trace into stream {name!r}, which {live!r} feeds live"
    stream = members.stream(name)
    if stream is None:
        return "too_many_streams", f"there are {members.limits.streams} streams already"
    if stream.schema is None or stream.schema == announcement.stream:
        return None  # as nearly always: without a look at the other motes, of which there may be thousands
    others = (each.mote for each in members.motes_of(name) if each.mote != mote)
    first = next(others, None)
    if first is None:
        return None
    extended = extends(announcement.stream, stream.schema) and same_driver(mote, first)
    if not extended or not all(same_driver(mote, each) for each in others):
        return "schema", f"mote {mote!r} gives stream {name!r} other fields than {first!r} does"
    return None


def extends(longer: StreamSchema, schema: StreamSchema) -> bool:
    """Return whether a schema has the columns of another and further ones behind them; a unit may be new, too."""
    pairs = list(zip(schema.fields, longer.fields, strict=False))
    return len(pairs) == len(schema.fields) and all(
        (old.name, old.type, old.fixed) == (new.name, new.type, new.fixed) and old.unit in {"", new.unit}
        for old, new in pairs
    )
