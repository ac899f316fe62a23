"""The catalog of sensors: messages in, relation out."""

from __future__ import annotations

import json

import msgspec
import polars as pl
import pytest
from structlog.testing import capture_logs

from cluster.service.catalog.sensor_catalog import (
    COLUMNS,
    Connected,
    EntryPublished,
    EntryRemoved,
    ProxyChanged,
    SensorCatalog,
    property_column,
    sensors_relation,
)
from protocols.errors import FrameError
from protocols.mqtt.link import Message
from protocols.wire import topics
from protocols.wire.catalog import ClockFault, MoteEntry, MoteState, Presence, Status
from protocols.wire.frames import encode
from protocols.wire.packets import Health
from tests.cluster.service.driven_devices import device
from tests.counted_calls import calls

HEARD_US = 1_330_560_000_000_000


def entry(mote, *, proxy="north", kind="loop", battery=0.5, heard_us=HEARD_US, lost=0, **properties):
    return MoteEntry(
        version=1,
        mote=mote,
        proxy=proxy,
        kind=kind,
        stream="traffic",
        properties=properties,
        state=MoteState.SAMPLING,
        period_us=1_000_000,
        default_period_us=300_000_000,
        minimum_period_us=16_000,
        program=7,
        packets_received=9,
        packets_lost=lost,
        packets_rejected=0,
        samples_received=90,
        samples_late=0,
        health=None if battery is None else Health(battery, 90, 9, 0, 0),
        heard_us=heard_us,
    )


def catalog_of(*entries, **limits):
    catalog = SensorCatalog(**limits)
    for each in entries:
        catalog.apply(EntryPublished(each))
    return catalog


def names(catalog):
    return sorted((each.proxy, each.mote) for each in catalog.snapshot()[0])


def hand(catalog, topic, payload):
    catalog.handle(Message(topic, payload, retain=True), topics.parse(topic))


def status(proxy, presence):
    return encode(Status(1, proxy, presence, "e", 0))


# --- state ---------------------------------------------------------------------------------------------------------


def test_newest_entry_of_each_mote_counts_and_motes_of_two_proxies_may_share_a_name():
    catalog = catalog_of(entry("m2"), entry("m1"), entry("m1", proxy="east"), entry("m2", kind="radar"))
    assert names(catalog) == [("east", "m1"), ("north", "m1"), ("north", "m2")]
    assert sensors_relation(*catalog.snapshot())["type"].to_list() == ["loop", "loop", "radar"]


def test_entries_are_removed_and_unknown_ones_ignored():
    catalog = catalog_of(entry("m1"), entry("m2"))
    catalog.apply(EntryRemoved("north", "m1"))
    catalog.apply(EntryRemoved("north", "m1"))
    assert names(catalog) == [("north", "m2")]


def test_a_snapshot_does_not_change():
    catalog = catalog_of(entry("m1"))
    catalog.apply(ProxyChanged("north", online=True))
    before = catalog.snapshot()
    catalog.apply(Connected())
    assert (len(before[0]), before[1]) == (1, frozenset({"north"}))
    assert catalog.snapshot() == ((), frozenset())


def test_entries_beyond_the_limit_are_rejected_and_known_ones_updated():
    catalog = catalog_of(entry("m1"), max_sensors=1)
    with pytest.raises(FrameError, match="1 sensors already"):
        catalog.apply(EntryPublished(entry("m2")))
    catalog.apply(EntryPublished(entry("m1", kind="radar")))
    assert [each.kind for each in catalog.snapshot()[0]] == ["radar"]


def test_properties_are_bounded_and_those_of_removed_sensors_do_not_count():
    catalog = catalog_of(entry("m1", lane=1, Segment=2), max_properties=2)
    catalog.apply(EntryPublished(entry("m2", segment=3)))
    with pytest.raises(FrameError, match="2 different properties"):
        catalog.apply(EntryPublished(entry("m3", road="I-880")))
    catalog.apply(EntryRemoved("north", "m1"))
    catalog.apply(EntryPublished(entry("m3", road="I-880")))
    assert len(catalog) == 2


def test_a_proxy_takes_the_room_for_properties_of_no_other():
    catalog = SensorCatalog(max_properties=4, max_properties_of_proxy=2)
    catalog.apply(EntryPublished(entry("m1", proxy="east", a=1, b=2)))
    with pytest.raises(FrameError, match="sensors of 'east' have 2 different properties already"):
        catalog.apply(EntryPublished(entry("m2", proxy="east", c=3)))
    catalog.apply(EntryPublished(entry("m1", lane=1, segment=2)))
    catalog.apply(EntryPublished(entry("m1", proxy="east", c=1, d=2)))  # in place of its former ones
    assert len(catalog) == 2


def test_an_entry_without_new_properties_is_the_same_work_however_many_proxies_there_are():
    def work(proxies):
        catalog = catalog_of(*(entry("m1", proxy=f"p{each}", lane=1, segment=2) for each in range(proxies)))
        again, first = entry("m1", proxy="p0", lane=3, segment=4), entry("m1", lane=1)
        return [calls(lambda each=each: catalog.apply(EntryPublished(each))) for each in (again, first)]

    assert work(500) == work(5)


def test_properties_of_proxies_that_are_offline_make_room():
    catalog = SensorCatalog(max_properties=2)
    catalog.apply(ProxyChanged("east", online=True))
    catalog.apply(EntryPublished(entry("m1", proxy="east", a=1, b=2)))
    with pytest.raises(FrameError, match="2 different properties"):
        catalog.apply(EntryPublished(entry("m1", lane=1)))
    assert catalog.relation()["a"].to_list() == [1]
    catalog.apply(ProxyChanged("east", online=False))
    catalog.apply(EntryPublished(entry("m1", lane=1)))
    assert {"lane"} == set(catalog.relation().columns) & {"a", "b", "lane"}
    assert (len(catalog), catalog.forgotten) == (2, 1)
    catalog.apply(EntryRemoved("east", "m1"))
    assert len(catalog) == 1


def test_entries_that_are_refused_are_counted_and_logged_once_a_minute():
    now = [0.0]
    catalog = SensorCatalog(clock=lambda: now[0])
    with capture_logs() as events:
        for now[0] in (0.0, 0.1, 59.0, 60.0, 60.1):
            hand(catalog, topics.mote_entry("north", "m1"), b"garbage")
    assert [each["times"] for each in events] == [1, 3]
    assert sum(catalog.rejected.values()) == 5


def test_proxies_are_bounded():
    catalog = SensorCatalog(max_proxies=1)
    catalog.apply(ProxyChanged("north", online=True))
    catalog.apply(ProxyChanged("north", online=True))
    with pytest.raises(FrameError, match="1 proxies"):
        catalog.apply(ProxyChanged("east", online=True))
    catalog.apply(ProxyChanged("north", online=False))
    catalog.apply(ProxyChanged("east", online=True))


# --- messages ------------------------------------------------------------------------------------------------------


def test_messages_fill_and_empty_the_catalog():
    catalog = SensorCatalog()
    hand(catalog, topics.mote_entry("north", "m1"), encode(entry("m1")))
    hand(catalog, topics.mote_entry("north", "m2"), encode(entry("m2")))
    hand(catalog, topics.mote_entry("north", "m1"), b"")
    assert names(catalog) == [("north", "m2")]
    assert catalog.rejected == {}


@pytest.mark.parametrize(
    ("payload", "online"),
    [
        (status("north", Presence.ONLINE), True),
        (status("north", Presence.OFFLINE), False),
        (b"", False),
    ],
)
def test_sensors_show_whether_their_proxy_is_online(payload, online):
    catalog = catalog_of(entry("m1"))
    catalog.apply(ProxyChanged("north", online=not online))
    hand(catalog, topics.proxy_status("north"), payload)
    assert sensors_relation(*catalog.snapshot())["proxy_online"].to_list() == [online]


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"\x00garbled", "shape"),
        (b"\xc1", "garbled"),
        (encode(entry("m1"))[:-3], "garbled"),
        (encode(entry("m2")), "identity"),
        (encode(entry("m1", proxy="east")), "identity"),
        (b"x" * 70_000, "size"),
    ],
)
def test_bad_entries_are_rejected_counted_and_quarantined(payload, reason):
    kept = []
    catalog = SensorCatalog(quarantine=lambda *what: kept.append(what))
    catalog.apply(EntryPublished(entry("m1")))
    hand(catalog, topics.mote_entry("north", "m1"), payload)
    assert catalog.rejected == {reason: 1}
    assert names(catalog) == [("north", "m1")]
    ((kind, _, topic, content),) = kept
    assert (kind, topic, content) == ("mote_entry", "fjord/v1/proxies/north/motes/m1", payload[:4096])


def test_a_full_catalog_counts_but_does_not_quarantine():
    kept = []
    catalog = SensorCatalog(quarantine=lambda *what: kept.append(what), max_sensors=0)
    for _ in range(3):
        hand(catalog, topics.mote_entry("north", "m1"), encode(entry("m1")))
    assert (catalog.rejected, kept) == ({"full": 3}, [])


def test_a_bad_status_is_counted_and_left_to_the_ingest_to_keep():
    kept = []
    catalog = SensorCatalog(quarantine=lambda *what: kept.append(what))
    hand(catalog, topics.proxy_status("north"), b"\xc1")
    assert (catalog.rejected, kept) == ({"garbled": 1}, [])


def test_other_messages_are_ignored():
    catalog = SensorCatalog()
    hand(catalog, topics.batches("north"), b"\xc1")
    assert (len(catalog), catalog.rejected) == (0, {})


# --- relation ------------------------------------------------------------------------------------------------------


def test_a_row_per_mote():
    relation = sensors_relation([entry("m1", lost=1, segment=3, road="I-880")], {"north"})
    assert relation.columns == [
        *COLUMNS, "mismatch", "proxy_clock_fault", "refused_demands", "proxy_online", "road", "segment",
    ]  # fmt: skip
    assert relation.to_dicts() == [
        {
            "sensor": "m1",
            "proxy": "north",
            "type": "loop",
            "stream": "traffic",
            "state": "sampling",
            "period_us": 1_000_000,
            "default_period_us": 300_000_000,
            "minimum_period_us": 16_000,
            "battery": 0.5,
            "packets_received": 9,
            "packets_lost": 1,
            "packets_rejected": 0,
            "samples_received": 90,
            "samples_late": 0,
            "loss": 0.1,
            "heard": "2012-03-01T00:00:00.000000Z",
            "program": 7,
            "device": None,
            "doing": None,
            "milliwatts": None,
            "lifetime_days": None,
            "stretched": 1,
            "lifetime_kept": True,
            "clock_offset_us": None,
            "clock_fault": None,
            "samples_ahead": 0,
            "samples_behind": 0,
            "driver": None,
            "publishes": None,
            "mains": None,
            "expected_every_us": None,
            "counts": None,
            "trouble": None,
            "mismatch": None,
            "proxy_clock_fault": None,
            "refused_demands": None,
            "proxy_online": True,
            "road": "I-880",
            "segment": 3,
        }
    ]


def test_unknown_values_are_null():
    silent = entry("m1", battery=None, heard_us=0)
    (row,) = sensors_relation([silent]).to_dicts()
    assert (row["battery"], row["heard"], row["proxy_online"]) == (None, None, None)
    assert sensors_relation([entry("m1", battery=None)])["battery"].dtype == pl.Float64


def test_sensors_of_mismatching_offers_show_the_reason():
    entries = [entry("m1"), msgspec.structs.replace(entry("m2"), proxy="south")]
    relation = sensors_relation(entries, None, {("south", "traffic"): "other columns", ("north", "weather"): "no"})
    assert dict(zip(relation["sensor"], relation["mismatch"], strict=True)) == {"m1": None, "m2": "other columns"}


def test_wrong_clocks_of_motes_and_proxies_are_shown_and_counted():
    wrong = msgspec.structs.replace(entry("m1"), clock_fault=ClockFault.BEHIND, samples_behind=7)
    ahead = msgspec.structs.replace(entry("m2", proxy="south"), samples_ahead=3)
    catalog = SensorCatalog(proxy_clocks=lambda: {"south": ClockFault.AHEAD})
    for each in (wrong, ahead, entry("m3")):
        catalog.apply(EntryPublished(each))
    names = ("sensor", "clock_fault", "samples_ahead", "samples_behind", "proxy_clock_fault")
    assert catalog.relation().select(names).rows() == [
        ("m1", "behind", 0, 7, None), ("m3", None, 0, 0, None), ("m2", None, 3, 0, "ahead"),
    ]  # fmt: skip
    assert catalog.clock_faults() == {"ahead": 0, "behind": 1}
    assert catalog.samples_rejected() == {"ahead": 3, "behind": 7}


def test_an_empty_catalog_has_all_columns_and_types():
    empty = sensors_relation([])
    assert empty.shape == (0, len(COLUMNS) + 4)
    assert empty.schema == sensors_relation([entry("m1")]).schema


def test_properties_do_not_hide_columns_and_have_no_case():
    assert [property_column(name) for name in ("lane", "TYPE", "Proxy_Online", "property_type")] == [
        "lane",
        "property_TYPE",
        "property_Proxy_Online",
        "property_property_type",
    ]
    relation = sensors_relation([entry("m1", Lane=1, type="wide"), entry("m2", lane=2)])
    assert relation.columns[-2:] == ["Lane", "property_type"]
    assert relation["Lane"].to_list() == [1, 2]
    assert relation["type"].to_list() == ["loop", "loop"]


@pytest.mark.parametrize(
    ("values", "column", "kind"),
    [
        ((1, None), [1, None], pl.Int64),
        ((1, 2.5), [1.0, 2.5], pl.Float64),
        ((2**63, 1), [2.0**63, 1.0], pl.Float64),
        ((True, False), [True, False], pl.Boolean),
        ((None, None), [None, None], pl.String),
        (("a", 1), ["a", "1"], pl.String),
        ((True, 1), ["true", "1"], pl.String),
        ((1.5, False), ["1.5", "false"], pl.String),
    ],
)
def test_a_property_has_one_type_for_all_sensors(values, column, kind):
    relation = sensors_relation([entry(f"m{at}", place=value) for at, value in enumerate(values)])
    assert (relation["place"].to_list(), relation["place"].dtype) == (column, kind)


def test_any_number_a_frame_may_carry_fits():
    largest = entry("m1", lost=2**63 - 1, place=float("nan"), height=-(2**63))
    decoded = SensorCatalog()
    hand(decoded, topics.mote_entry("north", "m1"), encode(largest))
    relation = sensors_relation(*decoded.snapshot())
    assert relation["packets_lost"].item() == 2**63 - 1
    assert json.dumps(relation["height"].item()) == str(-(2**63))


def test_a_row_of_a_device_has_its_driver_and_what_became_of_its_messages():
    counts = {"not_demanded": 12, "duplicate": 3, "no_value": 0}
    catalog, found = SensorCatalog(), device(
        counts=counts, trouble="its stream has other columns", milliwatts=3.0, lifetime_days=9.0,
        expected_every_us=5_000_000,
    )  # fmt: skip
    hand(catalog, topics.mote_entry("north", "bell"), encode(found))
    (row,) = catalog.relation().to_dicts()
    shown = ("driver", "publishes", "mains", "expected_every_us", "counts", "trouble", "milliwatts", "lifetime_days")
    assert [row[name] for name in shown] == [
        "shed", True, False, 5_000_000, "not_demanded 12, duplicate 3", "its stream has other columns", None, None,
    ]  # fmt: skip
