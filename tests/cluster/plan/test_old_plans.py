"""Plans that an earlier version wrote, with expressions as texts: they are read, and what is named by them stays so."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from cluster.operators.columns import identity_of
from cluster.physical.lowering import lower
from cluster.physical.plan_files import PlanFiles
from cluster.plan.epoch import EMPTY, Plan, PlanChange, decode_plan, encode_plan

OLD = Path(__file__).parents[2] / "system" / "old_folders" / "611828f.tar.xz"


def old_files() -> dict[int, bytes]:
    """Plan files of an old data folder by epoch."""
    with tarfile.open(OLD) as archive:
        named = {Path(member.name): archive.extractfile(member) for member in archive if member.isfile()}
        return {int(path.stem): file.read() for path, file in named.items() if path.parent.name == "plans" and file}


def texts_in(found: object) -> Iterator[tuple[str, str]]:
    """Text and type of each expression in what was decoded from JSON, in the order in which they stand there."""
    if isinstance(found, dict):
        if "sql" in found:
            yield found["sql"], found["type"]
        for each in found.values():
            yield from texts_in(each)
    elif isinstance(found, list):
        for each in found:
            yield from texts_in(each)


def nodes_in(plan: Plan | PlanChange) -> object:
    queries = plan.queries if isinstance(plan, Plan) else plan.added
    return msgspec.json.decode(identity_of(tuple(query.node for query in queries)))


def test_expressions_of_an_old_folder_are_written_as_they_were() -> None:
    expressions = 0
    for written in old_files().values():
        plan, texts = decode_plan(written), list(texts_in(msgspec.json.decode(written)))
        assert list(texts_in(nodes_in(plan))) == texts
        assert decode_plan(encode_plan(plan)) == plan
        assert b'"sql"' not in encode_plan(plan)
        expressions += len(texts)
    assert expressions > 20


def old_plans() -> dict[int, Plan]:
    """What those files say, made of one another."""
    found = {0: EMPTY}
    for epoch, written in sorted(old_files().items()):
        plan = decode_plan(written)
        found[epoch] = plan if isinstance(plan, Plan) else plan.applied_to(found[epoch - 1])
    return found


def test_a_plan_goes_on_from_an_old_one(tmp_path: Path) -> None:
    files, plans = PlanFiles(tmp_path), old_plans()
    for epoch, written in old_files().items():
        files.path(epoch).write_bytes(written)
    newest = files.newest()
    for epoch in (newest, *plans):
        assert PlanFiles(tmp_path).read(epoch) == files.read(epoch) == lower(plans[epoch])
    before = plans[newest]
    after = lower(Plan(newest + 1, before.queries[1:], before.positions), files.read(newest))
    files.write(after)
    assert b'"PhysicalChange"' in files.path(newest + 1).read_bytes()
    again = PlanFiles(tmp_path).read(newest + 1)
    assert again == after == lower(Plan(newest + 1, before.queries[1:], before.positions))
    assert [each.query for each in again.subscribers.values()] != []
