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
_NOT_ALLOWED = re.compile(r"Invalid (enum )?value '(?P<value>.*)'\Z")
_KINDS = (
    ("a device profile", ("processor", "adc", "radio")),
    ("a fleet", ("group", "world")),
    ("a sampling program", ("fields", "period")),
)
"""Files that are easily taken for each other, by entries that only they have."""
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


def refuse_other_kind(table: dict[str, Any], wanted: str, origin: str) -> None:
    """Refuse the content of a file of another kind.

    Raises
    ------
    SettingsError
        If it has nothing of the wanted kind (``a fleet``), but something of another one.
    """
    kinds = [kind for kind, entries in _KINDS if any(each in table for each in entries)]
    if kinds and wanted not in kinds:
        entries = next(entries for kind, entries in _KINDS if kind == wanted)
        raise SettingsError(
            f"{origin} is {kinds[0]}, not {wanted}", hint=f"{wanted} has entries such as {', '.join(entries)}"
        )


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
            if "value" in value:
                sources[path] = _source(value, path, origin)
                return value["value"]
            return {key: plain(each, f"{path}.{key}" if path else key) for key, each in value.items()}
        if isinstance(value, int | float) and not isinstance(value, bool):
            raise _without_source(path, value, origin)
        return value

    return plain(table, ""), sources


def _source(constant: dict[str, Any], path: str, origin: str) -> str:
    """Return the source of a constant."""
    for name in constant:
        if name not in {"value", "source"}:
            hint = did_you_mean(name, ["source"]) or "a constant has a value and a source"
            raise SettingsError(f"{path} in {origin} has {name!r}", hint=hint)
    source = constant.get("source")
    if not isinstance(source, str) or not source.strip():
        raise _without_source(path, constant["value"], origin)
    return source


def _without_source(path: str, value: Any, origin: str) -> SettingsError:
    return SettingsError(
        f"{path} in {origin} has no source", hint=f'write {path} = {{ value = {value}, source = "..." }}'
    )


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
    elif not_allowed := _NOT_ALLOWED.search(reason):
        return _not_allowed(not_allowed["value"], kind, path, text=text, origin=origin)
    line = line_of(text, path)
    where = origin if line is None else f"line {line} of {origin}"
    return SettingsError(f"{where}, field {path or '(top level)'}: {reason[0].lower()}{reason[1:]}", hint=hint)


def _not_allowed(value: str, kind: Any, path: str, *, text: str, origin: str) -> SettingsError:
    """Return the error about a word that is none of those that are allowed in its place."""
    within, _, name = path.rpartition(".")
    allowed = _words_at(msgspec.inspect.type_info(kind), path) or _tags_at(
        msgspec.inspect.type_info(kind), within, name
    )
    words = [word for word in allowed if word]
    table = len(words) < len(allowed)
    listed = f"is none of {', '.join(words)}"
    if table:
        listed = f"is not {' or '.join(words)}, or a table"
    where = f"line {line_of(text, path)} of {origin}, field {path}"
    return SettingsError(f"{where}: {value!r} {listed}", hint=did_you_mean(value, words))


def _words_at(kind: msgspec.inspect.Type, path: str) -> list[str]:
    """Return the words that may stand at a path; an empty one for a table."""
    words: list[str] = []
    for each in _types_at(kind, path):
        if isinstance(each, msgspec.inspect.EnumType):
            words += [str(member.value) for member in each.cls]
        elif isinstance(each, msgspec.inspect.LiteralType):
            words += map(str, each.values)
    tables = any(isinstance(each, msgspec.inspect.StructType) for each in _types_at(kind, path))
    return [*words, ""] if words and tables else words


def _tags_at(kind: msgspec.inspect.Type, path: str, name: str) -> list[str]:
    """Return the words that the entry `name` of a table at a path may have, which say of what kind the table is."""
    structs = [each for each in _types_at(kind, path) if isinstance(each, msgspec.inspect.StructType)]
    return [str(each.tag) for each in structs if each.tag_field == name]


def _types_at(kind: msgspec.inspect.Type, path: str) -> list[msgspec.inspect.Type]:
    kinds = [kind]
    for part in (each for each in re.split(r"[.\[\]]+", path) if each):
        kinds = [below for each in kinds for below in _below(each, part)]
    return [member for found in kinds for member in _members(found)]


def _fields_at(kind: msgspec.inspect.Type, path: str) -> list[str]:
    """Return the fields that a struct at a path within a type may have; of a union, those of all its structs."""
    structs = [each for each in _types_at(kind, path) if isinstance(each, msgspec.inspect.StructType)]
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
