"""Calls of functions of users: values, NULLs, batches; and what becomes of those that raise, hang, crash or lie."""

from __future__ import annotations

import contextlib
import math
import os
import select
import time
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from msgspec.structs import replace

from cluster.errors import ClusterError
from cluster.expressions.user_functions import FunctionLanguage, UserFunction
from cluster.fjord import scalars
from cluster.functions import calling
from cluster.functions.allowed import FunctionRules, checked_patterns, listed
from cluster.functions.calling import FunctionCalls, check_function
from cluster.functions.process import UserFunctionError
from protocols.wire.streams import FieldType
from tests.cluster.functions import oracle_functions

BOOLEAN, INTEGER, REAL, TEXT = FieldType.BOOLEAN, FieldType.INTEGER, FieldType.REAL, FieldType.TEXT
MODULE = "tests.cluster.functions.misbehaving"
END_SECONDS = 30
"""A process that was killed ends within a moment; only one that was not is waited for so long."""
RULES = FunctionRules((MODULE,), seconds=60.0)
SHORT = FunctionRules((MODULE,), seconds=0.5)
X = pl.Series([1.0, None, -2.5])


def function(attribute: str, *parameters: FieldType, result: FieldType = REAL, **others: object) -> UserFunction:
    return UserFunction(attribute, f"{attribute}@1", MODULE, attribute, parameters or (REAL,), result, **others)  # type: ignore[arg-type]


@contextlib.contextmanager
def calling_under(rules: FunctionRules, **others: object) -> Iterator[FunctionCalls]:
    calls = FunctionCalls(rules, **others)  # type: ignore[arg-type]
    try:
        yield calls
    finally:
        calls.end()


def failure(attribute: str, x: pl.Series = X, rules: FunctionRules = RULES, **others: object) -> str:
    with calling_under(rules) as calls, pytest.raises(UserFunctionError) as error:
        calls.call(function(attribute, **others), [x])  # type: ignore[arg-type]
    return str(error.value).removeprefix(f"function {attribute} ({MODULE}:{attribute}) failed: ")


def answer(attribute: str, *columns: pl.Series, **others: object) -> list[object]:
    with calling_under(RULES) as calls:
        return calls.call(function(attribute, **others), columns).to_list()  # type: ignore[arg-type]


def is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_function_gets_columns_of_the_declared_types_and_gives_one_as_long():
    assert answer("same", X) == [1.0, None, -2.5]
    assert answer("same", pl.Series([1, None])) == [1.0, None]  # an integer where a real is declared
    assert answer("same", pl.Series([None, None])) == [None, None]
    assert answer("whole", X, result=INTEGER) == [1, None, -2]
    assert answer("whole", X) == [1.0, None, -2.0]
    assert answer("nothing", X, result=TEXT) == [None, None, None]


def test_a_constant_is_as_long_as_the_other_columns():
    place = UserFunction("letters", "letters@1", oracle_functions.__name__, "letters", (TEXT, INTEGER), INTEGER)
    with calling_under(FunctionRules((oracle_functions.__name__,), seconds=60.0)) as calls:
        assert calls.call(place, [pl.Series(["ab", "c", None]), pl.Series([5])]).to_list() == [3, 2, None]
        assert calls.call(place, [pl.Series(["ab"]), pl.Series([5])]).to_list() == [3]
        assert calls.call(place, [pl.Series([], dtype=pl.String), pl.Series([5])]).to_list() == []


def test_arrow_arrays_are_given_and_taken_where_that_is_declared():
    place = UserFunction("low", "low@1", oracle_functions.__name__, "low", (REAL,), BOOLEAN)
    arrow = UserFunction(*[getattr(place, each) for each in place.__struct_fields__[:7]], FunctionLanguage.ARROW)
    with calling_under(FunctionRules((oracle_functions.__name__,), seconds=60.0)) as calls:
        assert calls.call(arrow, [X]).to_list() == [False, None, True]
        with pytest.raises(UserFunctionError, match="failed"):
            calls.call(place, [X])
    refused = failure("same", language=FunctionLanguage.ARROW, result=TEXT)
    assert refused.startswith("TypeError: it returned values of double, not of large_string, for TEXT")


def test_a_strict_function_is_called_with_rows_without_null_only():
    assert answer("nulls_are_five", X) == [1.0, 5.0, -2.5]
    assert answer("nulls_are_five", X, strict=True) == [1.0, None, -2.5]
    assert answer("called_with", X, result=INTEGER, strict=True) == [2, None, 2]
    assert answer("ends", pl.Series([None, None]), strict=True) == [None, None]  # it is not called


def test_reals_that_are_no_numbers_and_texts_that_are_too_long_are_null(monkeypatch):
    with calling_under(RULES) as calls:
        monkeypatch.setattr(scalars, "CALLS", calls)
        found = scalars.user_function(function("no_numbers"))(pl.Series([0.0] * 6)).to_list()
        assert found == [None, None, None, 0.0, None, 1.0]
        assert math.copysign(1.0, found[3]) == 1.0
        long = scalars.user_function(function("long_text", result=TEXT))(pl.Series([0.0] * 2))
        assert [each and len(each) for each in long.to_list()] == [10_000, None]


def test_many_rows_come_in_batches(monkeypatch):
    monkeypatch.setattr(calling, "BATCH_ROWS", 4)
    assert answer("called_with", pl.Series([0.0] * 9), result=INTEGER) == [4] * 8 + [1]


@pytest.mark.parametrize(
    ("attribute", "reason"),
    [
        ("raises_above_two", "ValueError: more than two (misbehaving.py, line "),
        ("shorter", "ValueError: it returned 1 values for 3 rows"),
        ("texts", "TypeError: it returned values of String, not of Float64, for REAL"),
        ("scalar", "TypeError: it returned a float, not a polars.Series"),
        ("exits", "SystemExit: enough (misbehaving.py, line "),
        ("ends", "its process ended with code 3"),
        ("crashes", "its process ended by SIGSEGV"),
        ("changes_polars", "ValueError: it returned 7 values for 3 rows"),
    ],
)
def test_what_a_function_does_wrong_is_an_error_on_one_line(attribute, reason):
    found = failure(attribute, pl.Series([1.0, None, 3.0]))
    assert found.startswith(reason)
    assert "\n" not in found


def test_an_integer_beyond_64_bits_is_an_error():
    assert "failed in conversion" in failure("huge", result=INTEGER) or "conversion" in failure("huge", result=INTEGER)


@pytest.mark.parametrize("attribute", ["loops", "waits_in_c", "leaves_a_child"])
def test_a_function_that_does_not_return_is_ended(attribute):
    with calling_under(RULES) as calls:
        calls.call(function("same"), [X])  # files are read
    assert failure(attribute, rules=SHORT) == "it did not return within 0.5 s, and was ended"


def test_what_a_function_has_started_ends_with_it_in_whatever_session(tmp_path):
    file = tmp_path / "numbers"
    with calling_under(FunctionRules((MODULE,), seconds=5.0)) as calls, pytest.raises(UserFunctionError):
        calls.call(function("leaves_its_session", TEXT, result=TEXT), [pl.Series([str(file)])])
    numbers = [int(each) for each in file.read_text().split()]
    assert len(numbers) == 2
    for each in numbers:
        with contextlib.suppress(ProcessLookupError):  # it is gone already
            process = os.pidfd_open(each)
            assert select.select([process], [], [], END_SECONDS)[0], "it goes on"
            os.close(process)


def test_memory_beyond_the_limit_is_an_error():
    found = failure("takes_memory", rules=FunctionRules((MODULE,), 60.0, 512 * 1024**2))
    assert found.startswith(("MemoryError", "its process ended by SIGABRT; it may take 512 MiB"))


def test_what_it_prints_is_no_answer_and_what_it_changes_is_a_copy():
    given = pl.Series([1.0, 2.0])
    assert answer("prints", given) == [1.0, 2.0]
    assert answer("changes_its_argument", given) == [99.0, 2.0]
    assert given.to_list() == [1.0, 2.0]


def test_no_secret_of_this_process_is_in_its_environment(monkeypatch):
    monkeypatch.setenv("FJORD_API_TOKEN", "s3cret")
    monkeypatch.setenv("PGPASSWORD", "s3cret")
    (found,) = answer("variables", pl.Series([1.0]), result=TEXT)
    assert "PATH" in str(found).split(",")
    assert not {"FJORD_API_TOKEN", "PGPASSWORD", "FJORD_BROKER_PASSWORD"} & set(str(found).split(","))


def test_each_function_has_a_process_of_its_own_and_keeps_it():
    with calling_under(RULES) as calls:
        numbers, again = function("numbers", result=INTEGER), function("numbers", TEXT, result=INTEGER)
        first = calls.call(numbers, [X])[0]
        assert calls.call(numbers, [X])[0] == first != os.getpid()
        assert calls.call(again, [pl.Series(["a"])])[0] != first


def test_the_process_of_the_function_that_was_called_longest_ago_is_ended(monkeypatch):
    monkeypatch.setattr(calling, "MOST_PROCESSES", 1)
    with calling_under(RULES) as calls:
        numbers = function("numbers", result=INTEGER)
        first = calls.call(numbers, [X])[0]
        calls.call(function("same"), [X])
        assert calls.call(numbers, [X])[0] != first
        with pytest.raises(ProcessLookupError):
            os.kill(first, 0)


def test_a_function_that_no_plan_calls_any_more_is_ended_and_others_are_not():
    with calling_under(RULES) as calls:
        dropped, kept, new = (replace(function("numbers", result=INTEGER), identity=f"f@{each}") for each in range(3))
        calls.follow(4, lambda: {dropped, kept})
        first, second = calls.call(dropped, [X])[0], calls.call(kept, [X])[0]
        calls.follow(5, lambda: {kept, new})
        assert not is_running(first)
        third = calls.call(new, [X])[0]
        calls.follow(4, lambda: {dropped, kept})  # the other Spark query is behind
        assert [calls.call(kept, [X])[0], calls.call(new, [X])[0]] == [second, third]
        late = calls.call(dropped, [X])[0]
        calls.follow(5, lambda: {kept, new})
        assert [is_running(each) for each in (late, second, third)] == [False, True, True]


def test_a_plan_is_looked_at_only_if_a_function_runs_that_is_not_known_to_be_called():
    with calling_under(RULES) as calls:
        same = function("same")
        calls.follow(1, lambda: pytest.fail("there is none"))
        calls.call(same, [X])
        calls.follow(1, lambda: pytest.fail("it was started for this plan"))
        calls.follow(2, lambda: {same})
        calls.follow(2, lambda: pytest.fail("it is known to be called"))


def test_a_function_that_is_not_called_for_long_is_ended_and_started_again():
    ahead = [0.0]
    with calling_under(RULES, clock=lambda: ahead[0]) as calls:
        numbers = function("numbers", result=INTEGER)
        first = calls.call(numbers, [X])[0]
        ahead[0] += calling.IDLE_SECONDS - 1
        assert calls.end_idle()
        assert is_running(first)
        ahead[0] += 1
        assert not calls.end_idle()
        assert not is_running(first)
        assert is_running(calls.call(numbers, [X])[0])


def test_processes_that_are_not_called_end_where_nothing_else_happens(monkeypatch):
    monkeypatch.setattr(calling, "IDLE_SECONDS", 0.0)
    monkeypatch.setattr(calling, "LOOK_SECONDS", 0.01)
    with calling_under(RULES) as calls:
        for _ in range(2):
            called = calls.call(function("numbers", result=INTEGER), [X])[0]
            until = time.monotonic() + END_SECONDS
            while is_running(called):
                assert time.monotonic() < until, "it goes on"
                time.sleep(0.01)


def test_a_function_that_took_too_long_rests_and_is_called_again():
    ahead = [0.0]
    with calling_under(SHORT, clock=lambda: time.monotonic() + ahead[0]) as calls:
        slow = function("loops_above_two")

        def ask(*values: float) -> str:
            began = time.monotonic()
            try:
                calls.call(slow, [pl.Series(values)])
            except UserFunctionError as error:
                return f"{error} {'soon' if time.monotonic() - began < 0.3 else 'late'}"
            return "answered"

        first = ask(3.0)
        assert first.endswith("it did not return within 0.5 s, and was ended late")
        assert ask(1.0) == first.replace("late", "soon")  # the same words, and nothing was waited for
        ahead[0] += 3600
        assert ask(1.0) == "answered"


def test_a_function_that_ends_its_process_rests_too():
    with calling_under(RULES) as calls:
        for _ in range(2):
            with pytest.raises(UserFunctionError, match="ended with code 3"):
                calls.call(function("ends"), [X])
        assert [each.process for each in calls._known.values()] == [None]


def test_a_function_that_raises_does_not_rest():
    with calling_under(RULES) as calls:
        picky = function("raises_above_two")
        with pytest.raises(UserFunctionError):
            calls.call(picky, [pl.Series([3.0])])
        assert calls.call(picky, [pl.Series([1.0])]).to_list() == [1.0]


def test_nothing_is_allowed_unless_it_is_named():
    with calling_under(FunctionRules()) as calls, pytest.raises(UserFunctionError, match="may not be called"):
        calls.call(function("same"), [X])
    with pytest.raises(UserFunctionError, match="the administrator has not allowed its module with --functions"):
        check_function(function("same"), FunctionRules(("tests.cluster.function",)))


def test_rules_that_are_narrowed_hold_at_once():
    with calling_under(RULES) as calls:
        calls.call(function("same"), [X])
        calls.use(FunctionRules(("other",)))
        with pytest.raises(UserFunctionError, match="may not be called"):
            calls.call(function("same"), [X])


@pytest.mark.parametrize(
    ("attribute", "parameters", "reason"),
    [
        ("missing", (REAL,), "has no attribute 'missing'"),
        ("NUMBER", (REAL,), "TypeError: NUMBER is a int, and cannot be called"),
        ("same", (REAL, REAL), "it cannot be called with 2 arguments: too many positional arguments"),
        ("system", (TEXT,), "comes from module 'posix', which is not allowed"),
    ],
)
def test_what_is_no_function_of_the_module_is_refused(attribute, parameters, reason):
    with pytest.raises(UserFunctionError) as error:
        check_function(function(attribute, *parameters), RULES)
    assert reason in str(error.value)


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        ("tests.cluster.functions.nowhere", "ModuleNotFoundError: No module named"),
        ("hangs_when_imported", "its module was not imported within 1 s, and was ended"),
        ("exits_when_imported", "SystemExit"),
        ("dies_when_imported", "its process ended with code 9"),
        ("raises_when_imported", "ZeroDivisionError: division by zero (raises_when_imported.py, line 1)"),
    ],
)
def test_a_module_that_cannot_be_imported_costs_its_author_only(module, reason, tmp_path, monkeypatch):
    Path(tmp_path, "hangs_when_imported.py").write_text("while True: pass")
    Path(tmp_path, "exits_when_imported.py").write_text("import sys; print('hello'); sys.exit(1)")
    Path(tmp_path, "dies_when_imported.py").write_text("import os; os._exit(9)")
    Path(tmp_path, "raises_when_imported.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(str(tmp_path))
    if "hangs" in module:
        monkeypatch.setattr("cluster.functions.process.LOADING_SECONDS", 1)
    with pytest.raises(UserFunctionError) as error:
        check_function(UserFunction("f", "f@1", module, "f", (REAL,), REAL), FunctionRules((module,)))
    assert reason in str(error.value)


def test_patterns_name_modules_packages_and_functions():
    rules = FunctionRules(("roads.*", "fleet", "yards.fleet:age"))
    allowed = [("roads", "f"), ("roads.a.b", "f"), ("fleet", "f"), ("yards.fleet", "age")]
    refused = [("roadside", "f"), ("fleet.a", "f"), ("yards.fleet", "other"), ("yards", "f"), ("os", "system")]
    assert [rules.allow(*each) for each in allowed] == [True] * 4
    assert [rules.allow(*each) for each in refused] == [False] * 5
    assert listed(["a, b.*", "", "c:f,"]) == ["a", "b.*", "c:f"]


@pytest.mark.parametrize("pattern", ["*", "a.*.b", "a*", "", ".a", "a:b:c", "a b", "a:_b", "a.*:f"])
def test_everything_is_not_allowed_by_one_word(pattern):
    with pytest.raises(ClusterError, match="names no module of functions"):
        checked_patterns([pattern])
