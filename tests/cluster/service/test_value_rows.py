"""One template, many queries: a file of values, the query of each row, and one plan for all of them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from cluster.errors import ClusterError
from cluster.physical.text import plan_text
from cluster.service import query_file
from cluster.service.client.api_client import RefusedError
from cluster.service.http.query_routes import TOGETHER
from cluster.service.query_command import query as query_commands
from cluster.service.query_file import ValueRow, read_rows
from protocols.wire import topics
from protocols.wire.catalog import StreamOffer
from protocols.wire.frames import encode
from tests.cluster.service.conftest import TRAFFIC, Service, application
from tests.cluster.service.test_queries_together import FakeCluster

TEMPLATE = "SELECT sensor, speed FROM traffic WHERE sensor = :sensor AND speed < :limit"


def rows_of(tmp_path: Path, text: str, *parameters: str, texts: tuple[str, ...] = ()) -> list[ValueRow]:
    file = tmp_path / "values.csv"
    file.write_text(text, encoding="utf-8")
    return read_rows(file, texts, parameters)


def test_each_line_is_a_query_with_its_name_and_values(tmp_path: Path) -> None:
    text = '\ufeffname,Limit,road\r\nslow,40,"A ""7"""\r\n\r\n few ,50,\'8\'\r\n'
    assert rows_of(tmp_path, text, "limit", "road") == [
        ValueRow(2, "slow", {"Limit": 40, "road": 'A "7"'}),
        ValueRow(4, "few", {"Limit": 50, "road": "8"}),
    ]


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (["40", "-1"], [40, -1]),
        (["40", "1.5", "NULL"], [40.0, 1.5, None]),
        (["40", " 50"], [40, 50]),
        (["true", "FALSE"], [True, False]),
        (["7", "A 7"], ["7", "A 7"]),
        ([" 8", "A 7 ", " 'x '"], ["8", "A 7", "x "]),
        (["true", "'x'", "null"], ["true", "x", None]),
        (["'7'", "'8'"], ["7", "8"]),
        (["5 MINUTES", "1 HOUR"], ["5 MINUTES", "1 HOUR"]),
    ],
)
def test_the_values_of_a_column_have_one_type(tmp_path: Path, words: list[str], values: list[object]) -> None:
    found = [each.values["a"] for each in rows_of(tmp_path, "\n".join(["a", *words]), "a")]
    assert [(each, type(each)) for each in found] == [(each, type(each)) for each in values]


def test_a_column_may_be_texts_as_they_stand(tmp_path: Path) -> None:
    found = rows_of(tmp_path, "a,b\n7,8\nNULL,9\n 'x',NULL\n", "a", "b", texts=("A",))
    assert [each.values for each in found] == [{"a": "7", "b": 8}, {"a": "NULL", "b": 9}, {"a": " 'x'", "b": None}]
    with pytest.raises(ClusterError, match="line 3 has no value for a") as caught:
        rows_of(tmp_path, "a,b\n7,8\n,9\n", "a", "b", texts=("A",))
    assert "a column of --text is never empty" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("", "values.csv is empty", "the first line names the parameters: a,b"),
        ("a,b\n1,2\n1,1e400\n", "values.csv: the value of b is larger than any REAL", None),
        ("\n\n", "values.csv is empty", "the first line names the parameters: a,b"),
        ("b\n1\n", "no column of .* is for the parameter :a", "--set a=VALUE"),
        ("a,b\n1,2\n,\n", "line 3 has no value for a", "write NULL"),
        ("a,b\n", "there are no rows in ", "values of a query"),
        ("a\n1\n", "no column of .* is for the parameter :b", "add a column b, or give"),
        ("a,b,c\n1,2,3\n", "the query has no parameter 'c', which is a column", "columns may be: a, b, name"),
        ("a,b,nam\n1,2,3\n", "the query has no parameter 'nam'", "did you mean name?"),
        ("a,b,A\n1,2,3\n", "there are two columns 'a'", "no case"),
        ("a,b\n1\n2,3\n,4\n5,\n", "(?s)line 2 has 1 value for 2.*line 4 has no value for a.*line 5 .* b", "NULL"),
        ("a,b\n1,2,3\n", "line 2 has 3 values for 2 columns", "NULL"),
        ('a,b\n1,"2\n', "cannot be read: line 2: unexpected end", None),
        ("a,b\n" + "1\n" * 30, "(?s)line 21 has.*and 10 more", "NULL"),
    ],
)  # fmt: skip
def test_a_faulty_file_is_refused_with_its_lines(tmp_path: Path, text: str, message: str, hint: str | None) -> None:
    with pytest.raises(ClusterError, match=message) as caught:
        rows_of(tmp_path, text, "a", "b")
    assert hint is None or hint in (caught.value.hint or "")


def test_names_are_not_values(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=r"the column name of .* names queries"):
        rows_of(tmp_path, "name\nx\n", "name")
    with pytest.raises(ClusterError, match="there is no column 'c'"):
        rows_of(tmp_path, "a\nx\n", "a", texts=("c",))
    with pytest.raises(ClusterError, match=r"missing\.csv cannot be read"):
        read_rows(tmp_path / "missing.csv", (), ("a",))


async def post(service: Service, **body: Any) -> httpx.Response:
    async with application(service.parts()) as client:
        return await client.post(TOGETHER, json=body)


async def test_a_thousand_queries_of_one_template_fold_into_one(service: Service) -> None:
    service.registry._max_queries = 2_000
    windows = (
        "SELECT sensor, AVG(speed) AS speed FROM traffic WINDOW(RANGE :size SLIDE 1 MINUTE) WHERE lane = :lane "
        "GROUP BY sensor"
    )
    rows = [{"name": f"s{n}", "parameters": {"sensor": f"loop {n}", "limit": n}} for n in range(1_000)]
    added = await post(service, sql=TEMPLATE, rows=rows)
    assert added.status_code == 201
    assert [each["row"] for each in added.json()["queries"]] == list(range(1, 1_001))
    assert len({each["epoch"] for each in added.json()["queries"]}) == 1
    assert service.registry.query("s7").sql == TEMPLATE.replace(":sensor", "'loop 7'").replace(":limit", "7")
    lines = plan_text(service.registry.physical).splitlines()
    assert len(service.registry.physical.fragments) == 1
    assert sum("filter" in line for line in lines) == 1
    assert any("grouped filter: 1,000 conditions" in line for line in lines), lines
    sizes = [{"parameters": {"size": f"{n % 5 + 1} MINUTES", "lane": n}} for n in range(100)]
    assert (await post(service, sql=windows, rows=sizes)).status_code == 201
    lines = plan_text(service.registry.physical).splitlines()
    assert len(service.registry.physical.fragments) == 2, lines


async def test_the_plan_is_that_of_a_thousand_texts(service: Service, tmp_path: Path) -> None:
    other = Service(tmp_path / "other")
    await other.handle(topics.stream_offer("p", "traffic"), encode(StreamOffer(1, "p", TRAFFIC)))
    for each in (service, other):
        each.registry._max_queries = 500
    texts = "".join(f"SELECT sensor, speed FROM traffic WHERE sensor = 's{n}' AND speed < {n};\n" for n in range(200))
    rows = [{"parameters": {"sensor": f"s{n}", "limit": n}} for n in range(200)]
    assert (await post(service, sql=TEMPLATE, rows=rows)).status_code == 201
    assert (await post(other, sql=texts)).status_code == 201
    try:
        assert plan_text(service.registry.physical) == plan_text(other.registry.physical)
    finally:
        other.registry.close()


async def test_all_refused_rows_are_reported_together_and_none_is_added(service: Service) -> None:
    rows = [
        {"parameters": {"sensor": "a"}},
        {"name": "b", "parameters": {"sensor": 7}},
        {"name": "c", "parameters": {"sensor": "c", "x": 1}},
    ]
    answer = await post(service, sql=f"-- many\n{TEMPLATE};", parameters={"limit": 1}, rows=rows)
    body = answer.json()
    assert (answer.status_code, body["row"], body["line"]) == (400, 2, 2)
    assert body["message"].startswith("query 'b': cannot compare: text and integer do not go together, at line 2")
    (other,) = body["others"]
    assert (other["row"], other["message"][:35]) == (3, "query 'c': there is no parameter 'x")
    assert service.registry.queries() == []
    taken = [{"name": "a", "parameters": {"sensor": "a"}}] * 2
    answer = await post(service, sql=TEMPLATE, parameters={"limit": 1}, rows=taken)
    assert (answer.status_code, answer.json()["row"]) == (409, 2)


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        (f"{TEMPLATE}; SELECT 1", "rows of values are for one statement, and the text has 2"),
        (f"-- name: many\n{TEMPLATE}", "each row would be named 'many'"),
        (" ; ", "there is no statement"),
    ],
)
async def test_rows_are_for_one_statement_without_a_name(service: Service, sql: str, message: str) -> None:
    answer = await post(service, sql=sql, rows=[{"parameters": {"sensor": "a", "limit": 1}}])
    assert (answer.status_code, answer.json()["message"]) == (400, message)
    assert (await post(service, sql=TEMPLATE, rows=[])).status_code == 422


@pytest.fixture
async def command(service: Service, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that runs `fjord query add` against a cluster."""

    class Calling(FakeCluster):
        def add_together(self, sql: str, parameters: Any = None, rows: Any = None) -> list[dict[str, Any]]:
            answer = asyncio.run_coroutine_threadsafe(
                post(service, sql=sql, parameters=dict(parameters), rows=rows), loop
            ).result()
            if answer.is_error:
                raise RefusedError(answer.json())
            return list(answer.json()["queries"])

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(query_file, "make_client", lambda _: Calling({}))

    async def run(*arguments: str, read: str = "") -> str:
        def invoke() -> str:
            called = CliRunner().invoke(query_commands, ["add", *arguments], input=read, catch_exceptions=False)
            return called.output

        return await asyncio.to_thread(invoke)

    return run


async def test_the_command_adds_a_query_for_each_line(service: Service, command: Any, tmp_path: Path) -> None:
    template, values = tmp_path / "template.sql", tmp_path / "values.csv"
    template.write_text(f"-- one sensor\n{TEMPLATE};\n")
    values.write_text("name,sensor\na,7\nb,8\n")
    shown = await command(str(template), "--set-from", str(values), "--text", "sensor", "--set", "limit=40")
    assert shown.endswith("a  fjord/v1/results/a\nb  fjord/v1/results/b\n")
    assert service.registry.query("b").sql == TEMPLATE.replace(":sensor", "'8'").replace(":limit", "40")
    shown = await command(TEMPLATE, "--set-from", "-", "--set", "limit=1", read="\ufeffname,sensor\r\ni,'9'\r\n")
    assert shown.endswith("i  fjord/v1/results/i\n")
    assert service.registry.query("i").sql == TEMPLATE.replace(":sensor", "'9'").replace(":limit", "1")
    values.write_text("name,sensor\nc,'7'\nd,TRUE\n\ne,'9'\nf,1.5\n")
    with pytest.raises(ClusterError) as caught:
        await command(str(template), "--set-from", str(values), "--set", "limit=fast")
    lines = caught.value.message.splitlines()
    assert lines[0] == "4 of 4 rows are rejected, and no query is added"
    assert lines[1].startswith(f"line 2 of {values}: query 'c': cannot compare: real and text do not go together, at ")
    assert [line.partition(" of ")[0] for line in lines if line.startswith("line")] == [
        f"line {n}" for n in (2, 3, 5, 6)
    ]
    assert [each.name for each in service.registry.queries()] == ["a", "b", "i"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--text", "a"], "columns are those of --set-from"),
        (["--set-from", "x.csv", "--name", "a"], "the queries are named by the column"),
        (["--set-from", "-"], "standard input has the query already"),
    ],
)
def test_options_that_do_not_go_together(arguments: list[str], message: str) -> None:
    query = "-" if "-" in arguments else TEMPLATE
    shown = CliRunner().invoke(query_commands, ["add", query, *arguments], input=TEMPLATE)
    assert shown.exit_code == 2
    assert message in " ".join(shown.stderr.replace("│", " ").split())
