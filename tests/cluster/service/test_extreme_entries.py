"""The most extreme values that the format of entries allows break no reader of the catalog."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cluster.service.billing.energy import explain_energy, kind_of
from cluster.service.billing.periods import Ledger
from cluster.service.catalog.sensor_catalog import SensorCatalog, sensors_relation
from cluster.service.http.sensor_sql import answer
from protocols.errors import FrameError
from protocols.mqtt.link import Message
from protocols.wire import topics
from protocols.wire.catalog import MoteEntry, decode_mote_entry
from protocols.wire.frames import encode
from tests.cluster.service.test_lifetime_notes import entry
from tests.protocols.extreme_frames import frames


def catalog_of(entries: list[MoteEntry], ledger: Ledger) -> SensorCatalog:
    found = SensorCatalog(accepted=ledger.note)
    for each in entries:
        topic = topics.mote_entry(each.proxy, each.mote)
        found.handle(Message(topic, encode(each)), topics.parse(topic))
    return found


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(frames(MoteEntry), min_size=1, max_size=3))
def test_extreme_entries_break_no_reader_of_the_catalog(entries: list[MoteEntry]) -> None:
    ledger = Ledger()
    catalog = catalog_of(entries, ledger)
    known, online = catalog.snapshot()
    rows = sensors_relation(known, online)
    assert rows.height == len(known)
    assert answer(rows, condition=None, sql="SELECT SUM(packets_lost), AVG(battery), MAX(stretched) FROM sensors")
    explain_energy({}, {}, {}, known, ledger.measured_mw())
    assert [kind_of(each, {}).stream for each in known] == [each.stream for each in known]


@pytest.mark.parametrize("stretched", [0, 2**63, 2**64 - 1])
def test_counters_that_no_column_can_hold_are_rejected(stretched: int) -> None:
    with pytest.raises(FrameError, match="does not fit its format"):
        decode_mote_entry(encode(msgspec.structs.replace(entry("m1"), stretched=stretched)))
