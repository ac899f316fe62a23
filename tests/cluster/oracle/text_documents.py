"""Functions and operators of JSON documents: every way to write them, and what they mean in DuckDB.

Documents are put together of drawn values, which may make them malformed: a NULL leaves a gap, a quote ends a text.
"""

from __future__ import annotations

from collections.abc import Iterator

from protocols.wire.streams import FieldType

BOOLEAN, INTEGER, REAL, TEXT = FieldType.BOOLEAN, FieldType.INTEGER, FieldType.REAL, FieldType.TEXT

Written = tuple[str, FieldType, tuple[FieldType, ...], tuple[str, ...], str]
"""Name, type of the result, types of the arguments, every way to write it, and what it is in DuckDB."""

_HELD = (INTEGER, TEXT, BOOLEAN)
_DOCUMENT = """CONCAT('{"a": [', {0}, ', "', {1}, '", null], "b": {"a": ', {2}, '}}')"""
_SAME = (
    """('{"a": [' || coalesce({0}::VARCHAR, '') || ', "' || coalesce({1}, '') || '", null], "b": {"a": ' """
    """|| coalesce({2}::VARCHAR, '') || '}}')"""
)
_FUNCTIONS = {
    "JSON_VALUE": "f_json_scalar", "JSON_QUERY": "f_json_container", "JSON_EXTRACT": "f_json_part",
    "JSON_EXTRACT_STRING": "f_json_text", "JSON_EXISTS": "f_json_exists",
}  # fmt: skip
_PATHS = (
    ("$", "$"), ("$.a[0]", "$.a[0]"), ('$."a"[1]', "$.a[1]"), ("$.a[-1]", "$.a[-1]"), ("lax $.a", "$.a"),
    ("$.a.b", "$.a.b"), ('$["b"].a', "$.b.a"), ("$.b[0]", "$.b[0]"),
)  # fmt: skip
"""Paths, and how DuckDB reads them."""
_RETURNED = {BOOLEAN: "f_truth({})", INTEGER: "f_integer({})", REAL: "f_number({})", TEXT: "{}"}


def documents() -> Iterator[Written]:
    """Yield functions and operators."""
    for number, (name, function) in enumerate(_FUNCTIONS.items()):
        result = BOOLEAN if name == "JSON_EXISTS" else TEXT
        names = (name, "GET_JSON_OBJECT") if name == "JSON_EXTRACT_STRING" else (name,)
        for path in ("$", "$[0]"):
            written = tuple(f"{each}({{0}}, '{path}')" for each in names)
            yield name, result, (TEXT,), written, f"{function}({{0}}, '{path}')"
        for path, same in _PATHS[number % 2 :: 2]:
            written = tuple(f"{each}({_DOCUMENT}, '{path}')" for each in names)
            yield name, result, _HELD, written, f"{function}({_SAME}, '{same}')"
    for kind, converted in _RETURNED.items():
        for path in ("$.a[0]", "$.b.a"):
            written = (f"JSON_VALUE({_DOCUMENT}, '{path}' RETURNING {kind.value.upper()})",)
            yield "JSON_VALUE RETURNING", kind, _HELD, written, converted.format(f"f_json_scalar({_SAME}, '{path}')")
    yield "->", TEXT, (TEXT,), ("{0:9} -> 'a'",), "f_json_part({0}, '$.a')"
    yield "->>", TEXT, (TEXT,), ("{0:9} ->> -1",), "f_json_text({0}, '$[-1]')"
    for keys, same in (("'a' ->> 0", "$.a[0]"), ("'a' -> -2", "$.a[-2]"), ("'b' ->> 'a'", "$.b.a"), ("0", "$[0]")):
        function = "f_json_text" if ">>" in keys else "f_json_part"
        yield "->", TEXT, _HELD, (f"{_DOCUMENT} -> {keys}",), f"{function}({_SAME}, '{same}')"
