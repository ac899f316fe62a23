"""Every text of faulty_texts.txt gets the message that stands below it there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from cluster.errors import ClusterError
from cluster.fjord.acceptance import check_supported
from cluster.language.catalog import StaticRelation
from cluster.language.errors import FjordSqlError
from cluster.language.translation import (
    CreateDerivedStream,
    SelectStatement,
    parse_statement,
    translate,
    translate_derived,
)
from cluster.operators.columns import Column
from cluster.plan.rewrite import rewrite
from protocols.wire.streams import FieldType
from tests.cluster.language.example_catalog import CATALOG

FEWEST = 150
PLACES = StaticRelation("places", "1", (Column("sensor", FieldType.TEXT), Column("segment", FieldType.INTEGER)))
INCIDENTS = StaticRelation("incidents", "2", (Column("sensor", FieldType.TEXT),))
LOAD = "CREATE STREAM minute_load AS SELECT COUNT(*) AS cars FROM traffic WINDOW(RANGE 1 MINUTE SLIDE 1 MINUTE)"
KNOWN = CATALOG.with_stream(PLACES).with_stream(INCIDENTS).with_stream(translate_derived(LOAD, CATALOG))


@dataclass(frozen=True)
class Faulty:
    """A text, the part of it that is to be underlined (None if there is no place), and the message."""

    text: str
    span: tuple[int, int] | None
    reason: str
    hint: str | None


def _faulty_texts() -> list[Faulty]:
    content = (Path(__file__).parent / "faulty_texts.txt").read_text(encoding="utf-8")
    blocks = [block.split("\n") for block in content.strip().split("\n\n")]
    return [_faulty(block) for lines in blocks if (block := [line for line in lines if line[:1] not in ("", "#")])]


def _faulty(block: list[str]) -> Faulty:
    lines = {line[0]: line[2:] for line in block if line[0] in "!?"}
    marked = "\n".join(line for line in block if line[0] not in "!?")
    text = marked.replace("»", "").replace("«", "")
    span = (marked.index("»"), marked.index("«") - 1) if "»" in marked else None
    return Faulty(text, span, lines["!"], lines.get("?"))


FAULTY = _faulty_texts()


def _take(text: str) -> None:
    """Do with a text what a cluster does, up to where the query would begin."""
    statement = parse_statement(text)
    if isinstance(statement, SelectStatement):
        check_supported(rewrite(translate(text, KNOWN).node).node)
    elif isinstance(statement, CreateDerivedStream):
        translate_derived(text, KNOWN)


def _begins(found: str | None, wanted: str | None) -> bool:
    if wanted is None or found is None or not wanted.endswith("..."):
        return found == wanted
    return found.startswith(wanted.removesuffix("..."))


@pytest.mark.parametrize("faulty", FAULTY, ids=[each.text for each in FAULTY])
def test_a_faulty_text_gets_its_message(faulty):
    with pytest.raises(ClusterError) as caught:
        _take(faulty.text)
    error = caught.value
    at = (error.start, error.end) if isinstance(error, FjordSqlError) else None
    reason = error.reason if isinstance(error, FjordSqlError) else error.message
    assert (reason, error.hint) == (faulty.reason, faulty.hint) or (
        _begins(reason, faulty.reason) and _begins(error.hint, faulty.hint)
    )
    assert at == faulty.span


def test_the_table_is_long_and_has_nothing_twice():
    assert len({each.text for each in FAULTY}) == len(FAULTY) >= FEWEST
