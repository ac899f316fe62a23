import subprocess
import sys
from importlib.metadata import EntryPoint, EntryPoints
from types import SimpleNamespace
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from protocols.command_line import application as command_line
from protocols.command_line.options import DefaultCommandGroup, byte_size_option, duration_option
from protocols.errors import FjordError

CLUSTER_HINT = "hint:  pip install 'fjord[cluster]'\n"

counting = typer.Typer()


@counting.command()
def count(
    *,
    duration_us: Annotated[int, duration_option("--duration", help="How long.", shown_default="1m")] = 60_000_000,
    size_bytes: Annotated[int, byte_size_option("--size", help="How much.")] = 1024,
):
    """Count things."""
    typer.echo(f"{duration_us} {size_bytes}")


motes = typer.Typer(cls=DefaultCommandGroup)


@motes.command("run")
def run(*, speed: int = 1):
    """Run motes."""
    typer.echo(f"run at {speed}")


@motes.command("list")
def list_():
    """List motes."""
    typer.echo("list")


failing = typer.Typer()


@failing.command()
def fail(how: str):
    """Fail in some way."""
    hinted = FjordError("no stream 'trafic'", hint="did you mean 'traffic'?")
    match how:
        case "hinted":
            raise hinted
        case "bare":
            raise FjordError("it broke")
        case "group":
            raise BaseExceptionGroup("tasks", [hinted, BaseExceptionGroup("more", [FjordError("it broke")])])
        case "mixed":
            raise BaseExceptionGroup("tasks", [hinted, ZeroDivisionError()])
        case "defect":
            raise ZeroDivisionError
        case "interrupt":
            raise KeyboardInterrupt
        case "late import":
            raise ModuleNotFoundError("No module named 'pyspark'", name="pyspark")
        case "own module":
            raise ModuleNotFoundError("No module named 'proxy.gone'", name="proxy.gone")


class _BrokenEntryPoint(EntryPoint):
    def load(self):
        raise ModuleNotFoundError("No module named 'deltalake.table'", name="deltalake.table")


class _Entry(EntryPoint):
    def load(self):
        return {"count": counting, "motes": motes, "fail": failing}[self.name]


@pytest.fixture
def fjord(monkeypatch):
    """Run `fjord` with these arguments, with the commands of this file."""
    entries = EntryPoints(
        [
            _Entry("count", "proxy.counting:app", "fjord.commands"),
            _Entry("fail", "cluster.failing:app", "fjord.commands"),
            _Entry("motes", "firmware_sim.command:app", "fjord.commands"),
            _BrokenEntryPoint("query", "cluster.service.query_command:query", "fjord.commands"),
        ]
    )
    monkeypatch.setattr(
        command_line.importlib,
        "metadata",
        SimpleNamespace(entry_points=entries.select, version=lambda name: f"version of {name}"),
    )
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(command_line, "configure_logging", lambda level, *, json: None)
    runner = CliRunner()
    return lambda *arguments: runner.invoke(command_line.app, arguments)


@pytest.mark.parametrize(
    ("arguments", "exit_code", "output"),
    [
        (["count"], 0, "60000000 1024\n"),
        (["count", "--duration", "1m30s", "--size", "64KiB"], 0, "90000000 65536\n"),
        (["count", "--duration", "366d"], 0, "31622400000000 1024\n"),
        (["motes"], 0, "run at 1\n"),
        (["motes", "--speed", "3"], 0, "run at 3\n"),
        (["motes", "run", "--speed", "3"], 0, "run at 3\n"),
        (["motes", "list"], 0, "list\n"),
        (["--version"], 0, "fjord version of fjord\n"),
    ],
)
def test_subcommands_and_default_commands_run(fjord, arguments, exit_code, output):
    result = fjord(*arguments)
    assert (result.exit_code, result.stdout, result.stderr) == (exit_code, output, "")


@pytest.mark.parametrize(
    ("arguments", "exit_code", "message"),
    [
        (["fail", "hinted"], 1, "error: no stream 'trafic'\nhint:  did you mean 'traffic'?\n"),
        (["fail", "bare"], 1, "error: it broke\n"),
        (["fail", "group"], 1, "error: no stream 'trafic'\nhint:  did you mean 'traffic'?\nerror: it broke\n"),
        (
            ["fail", "late import"],
            1,
            "error: `fjord fail` needs the Python module 'pyspark', which is not installed\n" + CLUSTER_HINT,
        ),
        (
            ["query", "add", "SELECT 1", "--json"],
            1,
            "error: `fjord query` needs the Python module 'deltalake', which is not installed\n" + CLUSTER_HINT,
        ),
        (["fail", "interrupt"], 130, ""),
    ],
)
def test_errors_become_messages_on_stderr(fjord, arguments, exit_code, message):
    result = fjord(*arguments)
    assert (result.exit_code, result.stderr, result.stdout) == (exit_code, message, "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["count", "--duration", "90"], "has no unit"),
        (["count", "--size", "64"], "is not a size"),
        (["cuont"], "Did you mean 'count'?"),
        (["motes", "rn"], "Did you mean 'run'?"),
        (["motes", "--sped", "3"], "--sped"),
    ],
)
def test_wrong_usage_exits_with_2(fjord, arguments, message):
    result = fjord(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


def test_debug_shows_where_the_error_arose(fjord):
    result = fjord("--debug", "fail", "hinted")
    assert result.exit_code == 1
    assert "Traceback" in result.stderr
    assert "raise hinted" in result.stderr


@pytest.mark.parametrize("how", ["defect", "mixed", "own module"])
def test_unknown_errors_are_not_hidden(fjord, how):
    result = fjord("fail", how)
    assert result.exit_code == 1
    assert isinstance(result.exception, ZeroDivisionError | BaseExceptionGroup | ModuleNotFoundError)


def test_the_overview_names_every_command_even_one_that_cannot_be_loaded(fjord):
    result = fjord("--help")
    assert result.exit_code == 0
    assert [word for word in ("Count things", "Fail in some way", "motes", "query") if word not in result.stdout] == []
    assert "not available here: pip install 'fjord[cluster]'" in result.stdout


def test_a_group_with_a_default_command_still_has_its_help(fjord):
    result = fjord("motes", "--help")
    assert result.exit_code == 0
    assert "List motes" in result.stdout


def test_without_entry_points_the_error_is_that_nothing_is_installed(fjord, monkeypatch):
    monkeypatch.setattr(command_line.importlib.metadata, "entry_points", EntryPoints().select)
    with pytest.raises(command_line.NoCommandsError, match="not installed"):
        command_line.LazyCommandGroup(name="fjord").list_commands(None)


def test_the_overview_imports_no_heavy_library():
    program = (
        "import sys, protocols.command_line.application as c\n"
        "try: c.typer.main.get_command(c.app).main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'pyspark', 'deltalake', 'pyarrow', 'polars', 'numpy', 'sqlglot', 'fastapi', 'uvicorn', 'amqtt'}\n"
        "print('heavy:', sorted(heavy & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "broker" in result.stdout
    assert result.stdout.splitlines()[-1] == "heavy: []"


@pytest.mark.parametrize("duration", ["366d1us", "106751991d", "200000000d"])
def test_durations_beyond_all_use_are_refused(fjord, duration):
    result = fjord("count", "--duration", duration)
    assert result.exit_code == 2
    assert "--duration" in result.stderr
    assert f"'{duration}' is not a duration" in " ".join(result.stderr.split())
