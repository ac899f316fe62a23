"""Settings in a TOML file, in variables and as options, of a program made up for it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import pytest
import typer
from pydantic import BaseModel, ConfigDict, Field
from typer.testing import CliRunner

from protocols.command_line.setting_options import with_options
from protocols.command_line.settings_file import (
    LARGEST_FILE_BYTES,
    ByteSize,
    Duration,
    Program,
    SettingsError,
    Shown,
    as_toml,
    check_variables,
    load,
)

PROGRAM = Program("fjord pump", "PUMP_")


class Pump(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Annotated[str, Shown(variable="PUMP")] = Field("well", description="Its name.")
    pause: Annotated[int, Duration(least_us=1_000_000, most_us=60_000_000)] = Field(5_000_000, description="A pause.")
    tank: Annotated[int | None, ByteSize(), Shown(unset="no bound", aliases=("--basin",))] = Field(
        None, description="A size."
    )
    valves: int = Field(2, ge=1, le=8, description="How many.")
    share: float = Field(0.5, ge=0.0, description="A share.")
    mode: Literal["slow", "fast"] = Field("slow", description="How.")
    pipes: tuple[str, ...] = Field((), description="A pipe.")
    folder: Path = Field(Path("here"), description="Where.")
    hours: Annotated[int | None, Duration()] = Field(None, description="How long.")


ODD = Pump(name='a "b" \\ é', pause=1_500_000, tank=3 * 1024**2, pipes=("x, y", "z'"), folder=Path("/a b"), share=1.0)


@pytest.mark.parametrize("settings", [Pump(), ODD])
def test_what_is_printed_reads_back(settings: Pump, tmp_path: Path) -> None:
    file = tmp_path / "pump.toml"
    file.write_text(as_toml(settings, PROGRAM), "utf-8")
    assert load(Pump, PROGRAM, {}, {}, file) == settings


def test_printed_settings_say_what_holds_where_there_is_none() -> None:
    lines = as_toml(Pump(), PROGRAM).splitlines()
    assert "# A size. Unset: no bound. [PUMP_TANK]" in lines
    assert "# tank =" in lines
    assert 'pause = "5s"' in lines
    assert "# Its name. [PUMP]" in lines


def test_an_option_is_before_a_variable_before_the_file_before_the_default(tmp_path: Path) -> None:
    file = tmp_path / "pump.toml"
    file.write_text('name = "file"\npause = "10s"\nvalves = 3\n')
    variables = {"PUMP": "variable", "PUMP_PAUSE": "20s"}
    found = load(Pump, PROGRAM, {"name": "option", "valves": None}, variables, file)
    assert (found.name, found.pause, found.valves, found.share) == ("option", 20_000_000, 3, 0.5)


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("\n\nvalve = 3", "pump.toml:3: there is no setting 'valve'", "did you mean valves?"),
        ("\n'zzz' = 3", "pump.toml:2: there is no setting 'zzz'", "--print-config"),
        ("[pumps]\na = 1", "pump.toml:1: there is no setting 'pumps'", "--print-config"),
        ("[[pipe]]\na = 1", "pump.toml:1: there is no setting 'pipe'", "did you mean pipes?"),
        ("name = 'x'\nvalves = 9", "valves = 9 ({}pump.toml:2): Input should be less than or equal to 8", "--print"),
        (
            "# valves\nvalves = 'x'",
            "valves = 'x' ({}pump.toml:2): that is no number",
            "write valves = 2, without quotes",
        ),
        ("pause = '500ms'", "'500ms' is not a duration: it must be at least 1s", "--print-config"),
        ("pause = 'soon'", "pause = 'soon' ({}pump.toml:1): 'soon' is not a duration", "--print-config"),
        ("tank = '5 gallons'", "tank = '5 gallons' ({}pump.toml:1): '5 gallons' is not a size", "--print-config"),
        ("mode = 'quick'", "mode = 'quick' ({}pump.toml:1): Input should be 'slow' or 'fast'", "--print-config"),
        ("name = 'a'\nname = 'b'", "pump.toml is not TOML: Cannot overwrite a value", ""),
        ("name = \nvalves = 1", "pump.toml is not TOML: Invalid value (at line 1", ""),
        ("pipes = " + "[" * 100_000, "pump.toml is not TOML", ""),
        ("#" * LARGEST_FILE_BYTES + "\n", "pump.toml has more than 1,048,576 bytes", ""),
    ],
    ids=lambda text: str(text)[:24],
)
def test_what_is_wrong_in_a_file_is_named_with_its_line(text: str, message: str, hint: str, tmp_path: Path) -> None:
    file = tmp_path / "pump.toml"
    file.write_text(text)
    with pytest.raises(SettingsError) as caught:
        load(Pump, PROGRAM, {}, {}, file)
    assert message.format(f"{tmp_path}/") in caught.value.message
    assert hint in (caught.value.hint or "")


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot read"):
        load(Pump, PROGRAM, {}, {}, tmp_path / "none.toml")
    with pytest.raises(SettingsError, match="cannot read"):
        load(Pump, PROGRAM, {}, {}, tmp_path)
    (tmp_path / "latin.toml").write_bytes(b"name = '\xe9'")
    with pytest.raises(SettingsError, match="is not TOML"):
        load(Pump, PROGRAM, {}, {}, tmp_path / "latin.toml")


def test_what_is_wrong_in_a_variable_names_it() -> None:
    with pytest.raises(SettingsError, match=r"valves = '0' \(PUMP_VALVES\)"):
        load(Pump, PROGRAM, {}, {"PUMP_VALVES": "0"})


# As options


def ran(*arguments: str, **variables: str) -> tuple[int, str, list[dict[str, object]]]:
    """Return the exit code of a command, what it prints, and with which settings it ran."""
    found: list[dict[str, object]] = []
    app = typer.Typer()

    @app.command()
    @with_options(Pump, PROGRAM)
    def pump(*, own: bool = False, **settings: object) -> None:
        found.append({"own": own, **{name: value for name, value in settings.items() if value is not None}})

    result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "300", **variables})
    return result.exit_code, result.output, found


def test_each_setting_is_an_option_and_a_variable() -> None:
    arguments = [
        "--own",
        "--pause",
        "2s",
        "--basin",
        "1KiB",
        "--mode",
        "fast",
        "--pipes",
        "a",
        "--pipes",
        "b",
        "--folder",
        "x",
    ]
    code, output, found = ran(*arguments, PUMP="v", PUMP_VALVES="3", PUMP_PAUSE="9s")
    assert code == 0, output
    given = {"pause": 2_000_000, "tank": 1024, "mode": "fast", "pipes": ["a", "b"], "folder": Path("x")}
    assert found == [{"own": True, **given, "name": "v", "valves": 3}]


def test_an_empty_variable_is_none() -> None:
    assert ran(PUMP="", PUMP_VALVES="", PUMP_PAUSE="")[2] == [{"own": False}]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--valves", "9"], "Invalid value for '--valves'"),
        (["--pause", "2m"], "'2m' is not a duration: it must be at most 1m"),
        (["--basin", "1"], "'1' is not a size"),
        (["--mode", "quick"], "Invalid value for '--mode'"),
        (["--valve", "1"], "No such option"),
    ],
)
def test_a_wrong_option_is_refused_before_the_command_runs(arguments: list[str], message: str) -> None:
    code, output, found = ran(*arguments)
    assert (code, found) == (2, [])
    assert message in output


def test_the_help_has_defaults_units_and_variables() -> None:
    code, output, _ = ran("--help")
    text = " ".join(output.split())
    assert code == 0
    for shown in ("PUMP_TANK", "no bound", "(5s)", "DURATION", "SIZE", "--basin", "A pipe; repeatable.", "1<=x<=8"):
        assert shown in text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pause = 5", "pump.toml:1): there is no unit"),
        ("tank = 3.5", "there is no unit"),
        ("pause = true", "there is no unit"),
        ("valves = true", "that is no number"),
        ('valves = "4"', "that is no number"),
        ('share = "0.5"', "that is no number"),
        ('name = "a\\u0000b"', "characters cannot be printed"),
        ('pipes = ["a\\u007fb"]', "characters cannot be printed"),
        (f"valves = {'9' * 5_000}", "is not TOML"),
        ("[name]\nx = 1", "name = a table"),
        (f'mode = "{"x" * 500}"', f"mode = '{'x' * 79}... "),
        ('mode = "user:hunter2@well"', "mode = '...@well'"),
    ],
)
def test_what_a_file_may_not_say_is_refused_before_it_is_taken_for_something_else(
    text: str, message: str, tmp_path: Path
) -> None:
    file = tmp_path / "pump.toml"
    file.write_text(text, "utf-8")
    with pytest.raises(SettingsError) as caught:
        load(Pump, PROGRAM, {}, {}, file)
    assert message in caught.value.message
    assert "hunter2" not in str(caught.value)


def test_a_byte_order_mark_is_no_part_of_the_first_key(tmp_path: Path) -> None:
    file = tmp_path / "pump.toml"
    file.write_text("valves = 4", "utf-8-sig")
    assert load(Pump, PROGRAM, {}, {}, file).valves == 4


def test_a_number_without_an_end_reads_back(tmp_path: Path) -> None:
    file = tmp_path / "pump.toml"
    file.write_text(as_toml(Pump(share=float("inf")), PROGRAM), "utf-8")
    assert load(Pump, PROGRAM, {}, {}, file).share == float("inf")


@pytest.mark.parametrize(
    ("variable", "hint"),
    [
        ("PUMP_VALVSE", "did you mean PUMP_VALVES?"),
        ("PUMP_NAME", "the variable of name is PUMP"),
        ("PUMP_WEATHER", "`fjord"),
    ],
)
def test_a_variable_without_a_setting_is_refused(variable: str, hint: str) -> None:
    check_variables({"PUMP_VALVES": "3", "PUMP_CONFIG": "pump.toml", "PUMPS": "x"}, Pump, PROGRAM)
    with pytest.raises(SettingsError, match=f"no setting behind the variable {variable}") as caught:
        check_variables({variable: "3"}, Pump, PROGRAM)
    assert str(caught.value.hint).startswith(hint)
