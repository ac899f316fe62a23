"""All targets, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.fuzz.catalog_target import CatalogTarget
from tests.fuzz.device_target import DeviceTarget
from tests.fuzz.fleet_target import FleetTarget
from tests.fuzz.frame_target import FrameTarget
from tests.fuzz.ingest_target import IngestTarget
from tests.fuzz.question_target import QuestionTarget
from tests.fuzz.request_target import RequestTarget
from tests.fuzz.statement_target import StatementTarget

if TYPE_CHECKING:
    from tests.fuzz.measuring import Target


def all_targets() -> dict[str, Target]:
    """Return a new target of each kind."""
    made: list[Target] = [
        FrameTarget(), FleetTarget(), DeviceTarget(), StatementTarget(), IngestTarget(), CatalogTarget(),
        RequestTarget(), QuestionTarget(),
    ]  # fmt: skip
    return {each.name: each for each in made}
