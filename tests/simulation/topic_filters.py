"""Which topics a filter of MQTT matches (section 4.7 of MQTT 5)."""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=65_536)
def matches(topic_filter: str, topic: str) -> bool:
    """Return whether a filter matches a topic."""
    wanted, found = topic_filter.split("/"), topic.split("/")
    if topic.startswith("$") and wanted[0] in {"+", "#"}:
        return False
    for place, level in enumerate(wanted):
        if level == "#":
            return True
        if place >= len(found) or level not in {"+", found[place]}:
            return False
    return len(wanted) == len(found)
