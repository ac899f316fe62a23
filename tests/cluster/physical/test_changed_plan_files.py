"""A plan file that was changed after it was written is refused."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from cluster.errors import PlanError
from cluster.language.catalog import Catalog
from cluster.language.translation import translate
from cluster.physical.lowering import with_query
from cluster.physical.nodes import NOTHING
from cluster.physical.plan_files import PlanFiles
from cluster.plan.epoch import PlannedQuery
from cluster.plan.rewrite import rewrite
from protocols.wire.streams import Field, FieldType, StreamSchema

FIELDS = Field("sensor", FieldType.TEXT, fixed=True), Field("speed", FieldType.REAL)
CATALOG = Catalog.of([StreamSchema("traffic", FIELDS)])
TEXTS = (
    "SELECT sensor, speed FROM traffic WHERE speed > 20",
    'SELECT sensor, speed FROM traffic WHERE speed > 77 AND sensor = \',"digest":"Straße\'',
    "SELECT sensor, MAX(speed) AS fastest FROM traffic WINDOW(RANGE 60 SECONDS SLIDE 60 SECONDS) GROUP BY sensor",
)


@pytest.fixture
def written(tmp_path: Path) -> PlanFiles:
    files, plan = PlanFiles(tmp_path), NOTHING
    for epoch, text in enumerate(TEXTS, start=1):
        plan = with_query(plan, PlannedQuery(f"q{epoch}", epoch, rewrite(translate(text, CATALOG).node).node))
        files.write(plan)
    assert PlanFiles(tmp_path).read(3) == plan
    return files


@pytest.mark.parametrize(
    ("epoch", "was", "becomes"),
    [
        (1, b'"20"', b'"21"'),  # a whole plan
        (2, b'"77"', b'"78"'),  # a change of it
        (2, b"Stra", b"stra"),
        (3, b"fastest", b"slowest"),
        (3, b"60000000", b"30000000"),
    ],
)
def test_a_changed_value_is_refused(written: PlanFiles, epoch: int, was: bytes, becomes: bytes) -> None:
    path = written.path(epoch)
    before = path.read_bytes()
    assert was in before
    path.write_bytes(before.replace(was, becomes))
    with pytest.raises(PlanError, match="it has been changed since it was written") as caught:
        PlanFiles(written.folder).read(3)
    assert str(path) in caught.value.message


def test_white_space_does_not_matter(written: PlanFiles) -> None:
    path = written.path(2)
    path.write_bytes(msgspec.json.format(path.read_bytes(), indent=-1))
    assert PlanFiles(written.folder).read(3) == written.read(3)


def test_a_file_from_before_there_were_digests_is_read(written: PlanFiles) -> None:
    path = written.path(2)
    content = msgspec.json.decode(path.read_bytes())
    del content["digest"]
    path.write_bytes(msgspec.json.encode(content))
    assert PlanFiles(written.folder).read(3) == written.read(3)
