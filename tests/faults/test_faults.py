"""A few quick schedules; ``make test-faults`` runs fifty drawn ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.faults.running import run_group
from tests.faults.schedules import Fault, Kind, Part, Schedule, Setting

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.system, pytest.mark.spark, pytest.mark.faults, pytest.mark.long]

SCHEDULES = (
    (Fault(Kind.FORGET, Part.BROKER, 0.5, 1.0),),
    (Fault(Kind.STOP, Part.PROXY, 0.5, 2.0), Fault(Kind.CUT, Part.CLUSTER_LINK, 1.0, 1.0)),
    (Fault(Kind.KILL, Part.CLUSTER, 0.5, 0.5), Fault(Kind.KILL, Part.PROXY, 0.7, 0.5)),
)

IN_TURN = (
    Fault(Kind.KILL, Part.PUBLISHER, 1.0, 1.0),
    Fault(Kind.KILL, Part.WORKER_1, 3.0, 1.0),
    Fault(Kind.KILL, Part.WORKER_2, 12.0, 1.0),
    Fault(Kind.KILL, Part.PUBLISHER, 14.0, 1.0),
)
"""The publisher and both Spark workers."""


@pytest.mark.parametrize(("setting", "plans"), [(Setting.LOCAL, SCHEDULES), (Setting.STANDALONE, (IN_TURN,))])
def test_guarantees_hold_under_faults(tmp_path: Path, setting: Setting, plans: tuple[tuple[Fault, ...], ...]) -> None:
    schedules = [Schedule(number, setting, faults) for number, faults in enumerate(plans)]
    outcomes = list(run_group(schedules, tmp_path))
    assert [(str(each.schedule), each.problems) for each in outcomes] == [(str(each), ()) for each in schedules]
    assert all(each.rows > 0 for each in outcomes), "there was something to compare"
