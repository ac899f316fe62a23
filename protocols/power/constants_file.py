"""Reading TOML files in which every constant has its source; errors name line and field."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec
import msgspec.inspect

from protocols.errors import SettingsError
from protocols.text.closeness import did_you_mean

T = TypeVar("T")

_PATH = re.compile(r" - at `\$\.?(?P<path>[^`]*)`\Z")
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<name>[^`]*)`")


def read_table(text: str, origin: str) -> dict[str, Any]:
    """Return the content of a TOML text.

    Raises
    ------
    SettingsError
        If it is no TOML; names the place.
    """
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{origin} is not TOML: {error}", hint="see https://toml.io") from error


def convert(table: dict[str, Any], kind: type[T], *, text: str, origin: str) -> T:
    """Return the table as a `kind`.

    Raises
    ------
    SettingsError
        If a field is unknown, missing, of a wrong type, out of range or not finite; names the line and the field.
    """
    for path, value in _not_finite(table, ""):
        raise SettingsError(f"line {line_of(text, path)} of {origin}, field {path}: {value} is not a finite amount")
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        raise _located(str(error), kind, text=text, origin=origin) from error


def without_sources(table: dict[str, Any], origin: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Return a table with plain numbers instead of ``{ value, source }``, and the sources by dotted name.

    Raises
    ------
    SettingsError
        If a number has no source.
    """
    sources: dict[str, str] = {}

    def plain(value: Any, path: str) -> Any:
        if isinstance(value, dict):
            if set(value) == {"value", "source"}:
                sources[path] = str(value["source"])
                return value["value"]
            return {key: plain(each, f"{path}.{key}" if path else key) for key, each in value.items()}
        if isinstance(value, int | float) and not isinstance(value, bool):
            raise SettingsError(
                f"{path} in {origin} has no source", hint=f'write {path} = {{ value = {value}, source = "..." }}'
            )
        return value

    return plain(table, ""), sources


def line_of(text: str, path: str) -> int | None:
    """Return the line on which the entry with this path (``mote[1].battery``) is, or where its table begins."""
    reports = [alone for alone in re.split(r"[.\[\]]+", path) if alone]
    table: list[str] = []
    counts: dict[str, int] = {}
    best: tuple[int, int] | None = None
    for number, line in enumerate(text.splitlines(), 1):
        header = re.match(r"\s*(\[\[?)\s*([^\]]+?)\s*\]", line)
        if header:
            name = header[2]
            table = name.split(".")
            if header[1] == "[[":
                counts[name] = counts.get(name, -1) + 1
                table.append(str(counts[name]))
            found = table
        else:
            entry = re.match(r"\s*([A-Za-z0-9_.\-]+)\s*=", line)
            if entry is None:
                continue
            found = [*table, *entry[1].split(".")]
        if found == reports[: len(found)] and (best is None or len(found) > best[0]):
            best = (len(found), number)
    return None if best is None else best[1]


def _not_finite(value: Any, path: str) -> Iterator[tuple[str, float]]:
    """Yield the numbers that are infinite or NaN, with their paths."""
    if isinstance(value, float) and not math.isfinite(value):
        yield path, value
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from _not_finite(each, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for place, each in enumerate(value):
            yield from _not_finite(each, f"{path}[{place}]")


def _located(message: str, kind: Any, *, text: str, origin: str) -> SettingsError:
    found = _PATH.search(message)
    path = found["path"] if found else ""
    reason = message[: found.start()] if found else message
    hint = None
    unknown = _UNKNOWN.search(reason)
    if unknown:
        hint = did_you_mean(unknown["name"], _fields_at(msgspec.inspect.type_info(kind), path))
        path = f"{path}.{unknown['name']}" if path else unknown["name"]
        reason = "unknown field"
    line = line_of(text, path)
    where = origin if line is None else f"line {line} of {origin}"
    return SettingsError(f"{where}, field {path or '(top level)'}: {reason[0].lower()}{reason[1:]}", hint=hint)


def _fields_at(kind: msgspec.inspect.Type, path: str) -> list[str]:
    """Return the fields that a struct at a path within a type may have; of a union, those of all its structs."""
    kinds = [kind]
    for part in (each for each in re.split(r"[.\[\]]+", path) if each):
        kinds = [below for each in kinds for below in _below(each, part)]
    structs = [each for found in kinds for each in _members(found) if isinstance(each, msgspec.inspect.StructType)]
    return [field.encode_name for struct in structs for field in struct.fields]


def _below(kind: msgspec.inspect.Type, part: str) -> Iterator[msgspec.inspect.Type]:
    """Yield the types of an item with this name, or of any item of an array."""
    for each in _members(kind):
        if isinstance(each, msgspec.inspect.StructType):
            yield from (field.type for field in each.fields if field.encode_name == part)
        elif isinstance(each, msgspec.inspect.DictType):
            yield each.value_type
        elif isinstance(each, msgspec.inspect.CollectionType | msgspec.inspect.VarTupleType):
            yield each.item_type


def _members(kind: msgspec.inspect.Type) -> Iterator[msgspec.inspect.Type]:
    if isinstance(kind, msgspec.inspect.UnionType):
        for each in kind.types:
            yield from _members(each)
    elif isinstance(kind, msgspec.inspect.Metadata):
        yield from _members(kind.type)
    else:
        yield kind
