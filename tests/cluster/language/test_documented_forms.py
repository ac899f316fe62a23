"""Forms that other systems document: accepted, or refused with what to write instead, or with the reason.

The files of ``documented_forms`` hold queries over a fleet of traffic and climate sensors, one group a file, typed as
users of Flink SQL, eKuiper, ksqlDB and Materialize would. A block is: ``@`` and the system, or ``@ none`` for a fault
of a user; the query, with the part that an error underlines between ``»`` and ``«``; and what is to become of it:

* ``=``: it is accepted as it is written; ``= query``: and means the same as that one;
* ``~ query``: it is refused, a hint has the words behind ``?``, and FjordSQL has that query for it; if nothing of it is
  underlined, it is accepted with another meaning, and a warning has these words;
* ``-``: it is refused, for the reason that the decision record 0058 has under the heading behind it, with such a hint;
* ``x``: it is faulty, for the reason behind ``!``.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from cluster.fjord.acceptance import check_supported
from cluster.language.catalog import BaseStream, Catalog, StaticRelation
from cluster.language.errors import FjordSqlError
from cluster.language.foreign_names import INSTEAD
from cluster.language.translation import translate
from cluster.operators import Node, Project, StampJoin
from cluster.operators.columns import Column
from cluster.physical.lowering import lower
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.rewrite import rewrite
from protocols.wire.streams import Field, FieldType, StreamSchema

HERE = Path(__file__).parent / "documented_forms"
DOCS = Path(__file__).parents[3] / "docs"
FEATURES = (DOCS / "reference" / "features.md").read_text(encoding="utf-8")
DECISION = (DOCS / "decisions" / "0058-forms-of-others-that-are-not-read.md").read_text(encoding="utf-8")
GROUPS = ("filters", "expressions", "time", "aggregates", "windows", "order", "joins", "sets", "alarms")
SYSTEMS = {"Flink SQL", "eKuiper", "ksqlDB", "Materialize", "none"}
TEXT, INTEGER, REAL, BOOLEAN = FieldType.TEXT, FieldType.INTEGER, FieldType.REAL, FieldType.BOOLEAN


def _stream(name: str, *fields: Field) -> BaseStream:
    return BaseStream(StreamSchema(name, fields), "ts")


CATALOG = Catalog.of([
    _stream(
        "traffic",
        Field("sensor", TEXT, fixed=True), Field("road", TEXT, fixed=True), Field("lane", INTEGER),
        Field("speed", REAL, "mph"), Field("flow", REAL), Field("open", BOOLEAN), Field("note", TEXT),
    ),
    _stream(
        "weather",
        Field("sensor", TEXT, fixed=True), Field("temperature", REAL, "degC"), Field("humidity", REAL),
        Field("wind", REAL, "mph"),
    ),
    _stream(
        "climate",
        Field("room", TEXT, fixed=True), Field("device", TEXT, fixed=True), Field("temperature", REAL, "degC"),
        Field("co2", INTEGER, "ppm"), Field("heating", BOOLEAN), Field("doc", TEXT),
    ),
    StaticRelation(
        "places", "places@1",
        (Column("sensor", TEXT), Column("segment", INTEGER), Column("km", REAL), Column("closed", BOOLEAN)),
    ),
    StaticRelation("sensors", "sensors@0", (Column("sensor", TEXT), Column("battery", REAL))),
    StaticRelation(
        "rooms", "rooms@0", (Column("room", TEXT), Column("floor", INTEGER), Column("target", REAL, "degC"))
    ),
])  # fmt: skip


@dataclass(frozen=True)
class Form:
    """A query, and what is to become of it: one of ``= ~ - x``, and what stands behind that."""

    group: str
    system: str
    text: str
    span: tuple[int, int] | None
    kind: str
    other: str
    reason: str
    hint: str


def _form(group: str, block: str) -> Form:
    lines = block.split("\n")
    marks = {line[0]: line[2:] for line in lines if line[0] in "@=~-x!?" and line[1:2] in ("", " ")}
    kinds = [mark for mark in marks if mark in "=~-x"]
    assert len(kinds) == 1, block
    marked = "\n".join(line for line in lines if line[0] not in marks or line[1:2] not in ("", " "))
    text = marked.replace("»", "").replace("«", "")
    span = (marked.index("»"), marked.index("«") - 1) if "»" in marked else None
    return Form(
        group, marks["@"], text, span, kinds[0], marks[kinds[0]], marks.get("!", ""), marks.get("?", "")
    )  # fmt: skip


FORMS = [
    _form(group, block)
    for group in GROUPS
    for block in (HERE / f"{group}.txt").read_text(encoding="utf-8").strip().split("\n\n")
]


def planned(text: str) -> Node:
    """Return the plan of a query that can run."""
    node = rewrite(translate(text, CATALOG).node).node
    check_supported(node)
    lower(Plan(1, (PlannedQuery("q", 1, node),)))
    return node


def _of_stamps(node: Node) -> tuple[object, ...] | None:
    """Return what a join by stamps is, if a plan is one; below it there may be stamps that nothing reads any more."""
    if not isinstance(node, Project) or not isinstance(join := node.input, StampJoin):
        return None
    return node.outputs, join.low_us, join.high_us, join.kind, join.keys, join.predicate, join.latest


def _named(kinds: str) -> list[Form]:
    return [form for form in FORMS if form.kind in kinds]


@pytest.mark.parametrize("form", _named("="), ids=lambda form: form.text)
def test_what_is_accepted_can_run_and_means_what_is_said(form: Form) -> None:
    node = planned(form.text)
    if form.other:
        meant = planned(form.other)
        assert node == meant or ((joined := _of_stamps(node)) is not None and joined == _of_stamps(meant))


@pytest.mark.parametrize("form", _named("~-x"), ids=lambda form: form.text)
def test_what_is_refused_says_why_or_what_to_write(form: Form) -> None:
    if form.span is None:
        assert form.kind == "~"
        assert form.hint in translate(form.text, CATALOG).warnings
        return
    with pytest.raises(FjordSqlError) as caught:
        planned(form.text)
    error = caught.value
    assert (error.start, error.end) == form.span
    assert form.reason in error.reason
    assert form.hint in (error.hint or "")
    assert form.reason if form.kind == "x" else form.hint


@pytest.mark.parametrize("form", _named("~"), ids=lambda form: form.text)
def test_fjordsql_has_a_query_for_what_others_spell_differently(form: Form) -> None:
    planned(form.other)


def test_each_refusal_has_its_reason_in_the_decision_record() -> None:
    headings = set(re.findall(r"^\*\*(.+?)\.\*\*", DECISION, flags=re.MULTILINE))
    assert {form.other for form in _named("-")} == headings


def test_no_form_is_there_twice_and_each_is_of_a_system() -> None:
    assert len({form.text for form in FORMS}) == len(FORMS) >= 400
    assert {form.system for form in FORMS} == SYSTEMS
    assert all((form.system == "none") == (form.kind == "x") for form in FORMS)


def test_the_page_of_features_has_the_counts() -> None:
    counts = Counter((form.group, form.kind) for form in FORMS)
    rows = [(name, *(counts[name, kind] for kind in "=~-x")) for name in GROUPS]
    totals = ("all", *(sum(counts[name, kind] for name in GROUPS) for kind in "=~-x"))
    for name, *numbers in (*rows, totals):
        assert f"| {name} | {' | '.join(str(each) for each in (sum(numbers), *numbers))} |" in FEATURES


def test_hints_are_about_functions_with_names() -> None:
    assert {name for name in INSTEAD if len(name) < 2} == {"E"}
