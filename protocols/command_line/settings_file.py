"""Settings of a program: a TOML file, over it variables of the environment, over these options of the command line.

What settings there are is a pydantic model: the name of a field is the key in the file, and in another spelling the
option and the variable.
"""

from __future__ import annotations

import json
import re
import tomllib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from protocols.errors import FjordError
from protocols.text.closeness import did_you_mean
from protocols.text.quantities import (
    LONGEST_OPTION_US,
    exact_byte_size,
    format_duration,
    parse_byte_size,
    parse_duration_between,
)

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic.fields import FieldInfo
    from pydantic_core import CoreSchema


def reader(read: Callable[[str], object]) -> Callable[[object], object]:
    """Return a validator of pydantic that reads texts, and passes on why one of Fjord's errors refuses a text."""
    from pydantic_core import PydanticCustomError

    def validated(value: object) -> object:
        try:
            return read(value) if isinstance(value, str) else value
        except FjordError as error:
            raise PydanticCustomError("text", "{problem}", {"problem": str(error)}) from error

    return validated


@dataclass(frozen=True, slots=True)
class Quantity(ABC):
    """A whole number that people write with a unit."""

    metavar: ClassVar[str]
    """What stands for it in the help."""
    example: ClassVar[str]
    """One in a file."""

    @abstractmethod
    def parse(self, text: str) -> int:
        """Return what a text means."""

    @abstractmethod
    def write(self, value: int) -> str:
        """Return a text that means a value."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Let a field of a pydantic model be written like this."""
        from pydantic_core import core_schema

        return core_schema.no_info_before_validator_function(reader(self.parse), handler(source))


@dataclass(frozen=True, slots=True)
class Duration(Quantity):
    """Microseconds, written as ``30s``.

    Parameters
    ----------
    least_us, most_us
        The shortest and the longest that is accepted.
    """

    metavar: ClassVar[str] = "DURATION"
    example: ClassVar[str] = '"30s"'
    least_us: int = 0
    most_us: int = LONGEST_OPTION_US

    def parse(self, text: str) -> int:
        """Return the microseconds that a text means.

        Raises
        ------
        DurationError
            If it is no duration, or one that is not accepted.

        >>> Duration().parse("2s")
        2000000
        """
        return parse_duration_between(text, self.least_us, self.most_us)

    def write(self, value: int) -> str:
        """Return it with the unit that fits."""
        return format_duration(value)


@dataclass(frozen=True, slots=True)
class ByteSize(Quantity):
    """Bytes, written as ``64KiB``."""

    metavar: ClassVar[str] = "SIZE"
    example: ClassVar[str] = '"64MiB"'

    def parse(self, text: str) -> int:
        """Return the bytes that a text means; a text that means none is an error of `parse_byte_size`."""
        return parse_byte_size(text)

    def write(self, value: int) -> str:
        """Return it with the largest unit of which it is a multiple."""
        return exact_byte_size(value)


LARGEST_FILE_BYTES = 1024**2
LONGEST_SHOWN = 80
"""Characters of a value in an error."""
Model = TypeVar("Model", bound=BaseModel)


class SettingsError(FjordError):
    """A setting that is unknown, of a wrong form or out of range, or a file that cannot be read."""


@dataclass(frozen=True, slots=True)
class Shown:
    """How a setting is shown, beside its description.

    Parameters
    ----------
    unset
        What holds where it is not set, if that is no value.
    variable
        Its environment variable, if it has one of its own.
    metavar
        What stands for its value in the help.
    aliases
        Further names of its option.
    """

    unset: str = ""
    variable: str = ""
    metavar: str = ""
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Program:
    """A program whose settings these are.

    Parameters
    ----------
    command
        As people write it: ``fjord proxy``.
    prefix
        What variables begin with: ``FJORD_PROXY_``.
    """

    command: str
    prefix: str

    def variable(self, name: str, field: FieldInfo) -> str:
        """Return the environment variable of a setting."""
        return shown(field).variable or f"{self.prefix}{name.upper()}"

    @property
    def hint(self) -> str:
        """Where all settings can be seen."""
        return f"`{self.command} --print-config` shows every setting"


def load(
    model: type[Model],
    program: Program,
    options: Mapping[str, object],
    environment: Mapping[str, str],
    file: Path | None = None,
) -> Model:
    """Return the settings; `options` of None are ignored.

    Raises
    ------
    SettingsError
        Names the setting that is wrong, and where it comes from: a line of the file, a variable or an option.
    """
    values, origins = _read(file)
    _check_file(values, origins, model)
    for name, field in model.model_fields.items():
        variable = program.variable(name, field)
        if variable in environment:
            values[name], origins[name] = environment[variable], variable
        if options.get(name) is not None:
            values[name], origins[name] = options[name], option_name(name)
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise _refused(error, model, program, origins) from error


def _refused(
    error: ValidationError, model: type[BaseModel], program: Program, origins: Mapping[str, str]
) -> SettingsError:
    first = error.errors()[0]
    name = str(first["loc"][0]) if first["loc"] else "settings"
    origin = origins.get(name, "default")
    given = _quoted(first["input"])
    if first["type"] == "extra_forbidden":
        return SettingsError(
            f"{origin}: there is no setting {name!r}", hint=did_you_mean(name, model.model_fields) or program.hint
        )
    return SettingsError(f"{name} = {given} ({origin}): {first['msg']}", hint=program.hint)


def _quoted(value: object) -> str:
    """Return a value for an error: short, and without what may be a password."""
    if isinstance(value, str) and "@" in value:
        value = f"...@{value.rpartition('@')[2]}"
    if isinstance(value, dict | list | tuple):
        return "a table" if isinstance(value, dict) else "a list"
    text = repr(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."


def _check_file(values: Mapping[str, object], origins: Mapping[str, str], model: type[BaseModel]) -> None:
    """Refuse values of a file that pydantic would take for others: numbers without a unit, texts and truths as numbers.

    Raises
    ------
    SettingsError
        With the line.
    """
    for name, value in values.items():
        field = model.model_fields.get(name)
        if field is None:
            continue
        where, unit = f"{name} = {_quoted(value)} ({origins[name]})", quantity(field)
        if unit is not None and isinstance(value, int | float):
            raise SettingsError(
                f"{where}: there is no unit", hint=f"write it as a text, such as {name} = {unit.example}"
            )
        if unit is None and _is_number(field) and isinstance(value, bool | str):
            raise SettingsError(
                f"{where}: that is no number", hint=f"write {name} = {field.default or 1}, without quotes"
            )
        if any(isinstance(each, str) and each and not each.isprintable() for each in _texts(value)):
            raise SettingsError(f"{where}: some characters cannot be printed", hint="leave them out")


def _texts(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else (value,)


def _is_number(field: FieldInfo) -> bool:
    kinds = {field.annotation, *get_args(field.annotation)}
    return bool(kinds & {int, float})


def check_variables(environment: Mapping[str, str], model: type[BaseModel], program: Program) -> None:
    """Refuse variables with the prefix of a program that are none of its settings: they would change nothing.

    Raises
    ------
    SettingsError
        Names one, and the setting that it may be meant for.
    """
    known = {program.variable(name, field) for name, field in model.model_fields.items()} | {f"{program.prefix}CONFIG"}
    for variable in sorted(each for each in environment if each.startswith(program.prefix)):
        if variable not in known:
            name = variable.removeprefix(program.prefix).lower()
            field = model.model_fields.get(name)
            meant = None if field is None else f"the variable of {name} is {program.variable(name, field)}"
            raise SettingsError(
                f"there is no setting behind the variable {variable}",
                hint=meant or did_you_mean(variable, known) or program.hint,
            )


def _read(file: Path | None) -> tuple[dict[str, object], dict[str, str]]:
    """Return the values in a file, and where each stands."""
    if file is None:
        return {}, {}
    try:
        with file.open("rb") as opened:
            octets = opened.read(LARGEST_FILE_BYTES + 1)
        if len(octets) > LARGEST_FILE_BYTES:
            raise SettingsError(f"{file} has more than {LARGEST_FILE_BYTES:,} bytes: is this the file of settings?")
        text = octets.decode("utf-8-sig")
        values: dict[str, object] = tomllib.loads(text)
    except OSError as error:
        raise SettingsError(f"cannot read {file}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # TOML, its encoding, a number of thousands of digits
        raise SettingsError(f"{file} is not TOML: {error}") from error
    return values, {name: f"{file}{_line_of(name, text)}" for name in values}


def _line_of(name: str, text: str) -> str:
    """Return the line at which a key or a table begins, behind a colon; empty if it is not found."""
    begins = re.compile(rf"\s*\[*\s*(['\"]?){re.escape(name)}\1\s*[=.\]]")
    found = (number for number, line in enumerate(text.splitlines(), 1) if begins.match(line))
    return next((f":{number}" for number in found), "")


def as_toml(settings: BaseModel, program: Program) -> str:
    """Return settings as a commented TOML file; those without a value are commented out."""
    lines = [
        f"# Settings of `{program.command} --config FILE`. Options and environment variables come before this file.",
        "",
    ]
    for name, field in type(settings).model_fields.items():
        unset = shown(field).unset
        lines.append(f"# {field.description}{f' Unset: {unset}.' if unset else ''} [{program.variable(name, field)}]")
        value = getattr(settings, name)
        lines += [f"# {name} =" if value is None else f"{name} = {_in_toml(value, quantity(field))}", ""]
    return "\n".join(lines)


def written(value: object, field: FieldInfo) -> str:
    """Return the value of a setting as options have it; empty for none."""
    unit = quantity(field)
    if value is None or isinstance(value, tuple):
        return ""
    return unit.write(value) if unit is not None and isinstance(value, int) else str(value)


def _in_toml(value: object, written_as: Quantity | None) -> str:
    if written_as is not None and isinstance(value, int):
        return json.dumps(written_as.write(value))
    if isinstance(value, tuple | list):
        return f"[{', '.join(_in_toml(each, written_as) for each in value)}]"
    if isinstance(value, float):
        return repr(value)  # inf is TOML, Infinity is not
    if isinstance(value, bool | int):
        return json.dumps(value)
    return json.dumps(str(value), ensure_ascii=False)


def option_name(name: str) -> str:
    """Return the option of a setting.

    >>> option_name("max_state")
    '--max-state'
    """
    return "--" + name.replace("_", "-")


def shown(field: FieldInfo) -> Shown:
    """Return how a setting is shown."""
    return next((each for each in _metadata(field) if isinstance(each, Shown)), Shown())


def quantity(field: FieldInfo) -> Quantity | None:
    """Return how a setting is written, if it has a unit."""
    return next((each for each in _metadata(field) if isinstance(each, Quantity)), None)


def _metadata(field: FieldInfo) -> list[Any]:
    """Return what stands beside the type of a setting, and beside those that it consists of if it may be unset."""
    inner = [each for part in get_args(field.annotation) for each in getattr(part, "__metadata__", ())]
    return [*field.metadata, *inner]
