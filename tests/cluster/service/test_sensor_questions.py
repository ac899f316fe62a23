"""Questions about sensors: whatever one does to the process that answers it, the next is answered."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import msgspec
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.functions.asked_process import AskedProcess
from cluster.language.errors import FjordSqlError
from cluster.service.http.sensor_questions import (
    MEMORY_BYTES,
    MOST_OF_ONE,
    QuestionFailedError,
    SensorQuestions,
    TooManyQuestionsError,
)
from cluster.service.http.sensor_sql import MOST_IN_A_ROW, select

SENSORS = pl.DataFrame({"sensor": ["a", "b"], "x": [1, None], "b": [True, False]})
HOWEVER_ASKED = {
    "dies": "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
    "ends": "pass",
    "answers what is no answer": "import sys; sys.stdout.buffer.write(b'x' * 100); sys.stdout.flush()",
    "takes all memory": "import resource as r; r.setrlimit(r.RLIMIT_DATA, (1 << 27, 1 << 27)); x = bytearray(1 << 30)",
}


def chain(operator, operands):
    return f"SELECT {f' {operator} '.join(operands)} AS y FROM sensors"


@pytest.mark.parametrize("length", [2, MOST_IN_A_ROW, MOST_IN_A_ROW + 1, 833])
def test_long_chains_of_texts_are_one_text(length):
    (a, b) = select(SENSORS, chain("||", ["sensor"] * length))["y"]
    assert (a, b) == ("a" * length, "b" * length)


@given(st.lists(st.sampled_from(["b", "x > 0", "NOT b", "x IS NULL"]), min_size=2, max_size=60), st.booleans())
def test_long_chains_of_conditions_mean_what_short_ones_do(operands, is_and):
    operator = "AND" if is_and else "OR"
    values = [select(SENSORS, f"SELECT {each} AS y FROM sensors")["y"].to_list() for each in operands]
    decides = not is_and
    expected = [
        decides if decides in each else None if None in each else not decides for each in zip(*values, strict=True)
    ]
    assert select(SENSORS, chain(operator, operands))["y"].to_list() == expected


@pytest.mark.parametrize(
    "sql",
    [
        chain("+", ["x"] * 1_200),
        chain("/", ["x"] * 101),
        f"SELECT {'(' * 200}x{')' * 200} AS y FROM sensors",
        f"SELECT {'ABS(' * 120}x{')' * 120} AS y FROM sensors",
        f"SELECT {'CASE WHEN b THEN ' * 110}1{' END' * 110} AS y FROM sensors",
        chain("OR", [f"x = {number}" for number in range(1_000)]),
        f"SELECT x FROM sensors WHERE x IN ({', '.join(['1'] * 5_100)})",
        f"SELECT {'NOT ' * 1_000}b AS y FROM sensors",
        f"SELECT {'- ' * 1_000}x AS y FROM sensors",
    ],
)
def test_too_much_is_refused_with_its_place(sql):
    with pytest.raises(FjordSqlError, match=r"nested too deeply|parts, the limit"):
        select(SENSORS, sql)


@pytest.mark.parametrize("what", HOWEVER_ASKED)
async def test_a_process_that_fails_costs_one_question(what):
    scripts = [HOWEVER_ASKED[what]]
    questions = SensorQuestions(
        lambda: AskedProcess(["-c", scripts.pop()], memory_bytes=MEMORY_BYTES) if scripts else started()
    )
    with pytest.raises(QuestionFailedError, match="not answered"):
        await questions.answer(SENSORS, condition=None, sql="SELECT x FROM sensors")
    assert await questions.answer(SENSORS, condition="x = 1", sql=None)
    assert questions.ended == 1
    questions.end()


def started():
    return SensorQuestions()._make_process()


async def test_a_process_that_is_killed_between_two_questions_is_started_again():
    questions = SensorQuestions()
    first = await questions.answer(SENSORS, condition="b", sql=None)
    assert msgspec.json.decode(first)["rows"] == [{"sensor": "a", "x": 1, "b": True}]
    process = questions._process
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)
    process._child.wait()
    assert await questions.answer(SENSORS, condition="b", sql=None) == first
    questions.end()
    assert process.ended


def test_a_forgotten_process_is_ended():
    process = started()
    child = process._child
    assert child.poll() is None
    del process
    assert child.returncode == -signal.SIGKILL
    assert child.stdin.closed
    assert child.stdout.closed


async def test_errors_name_their_place_as_without_a_process():
    questions = SensorQuestions()
    long = f"SELECT '{'é' * 30_000}' FROM sensors"
    for sql in ("SELECT nothing FROM sensors", "SELECT x FROM others", "SELECT x FROM sensors WHERE", long):
        with pytest.raises(FjordSqlError) as expected:
            select(SENSORS, sql)
        with pytest.raises(FjordSqlError) as found:
            await questions.answer(SENSORS, condition=None, sql=sql)
        assert (str(found.value), found.value.hint, found.value.underlined()) == (
            str(expected.value), expected.value.hint, expected.value.underlined(),
        )  # fmt: skip
    questions.end()


async def test_one_token_does_not_take_the_turns_of_others():
    questions = SensorQuestions()

    def ask(caller):
        return asyncio.create_task(questions.answer(SENSORS, condition="b", sql=None, caller=caller))

    greedy = [ask("greedy") for _ in range(20)]
    modest = ask("modest")
    found = await asyncio.gather(*greedy, return_exceptions=True)
    assert sum(isinstance(each, bytes) for each in found) == MOST_OF_ONE
    assert sum(isinstance(each, TooManyQuestionsError) for each in found) == 20 - MOST_OF_ONE
    assert await modest
    assert await ask("greedy")
    questions.end()


async def test_the_process_has_no_token(monkeypatch):
    monkeypatch.setenv("FJORD_API_TOKEN", "secret")
    questions = SensorQuestions()
    await questions.answer(SENSORS, condition="b", sql=None)
    process = questions._process
    assert process is not None
    variables = await asyncio.to_thread(Path(f"/proc/{process.pid}/environ").read_bytes)
    assert b"PATH" in variables
    assert b"secret" not in variables
    questions.end()
