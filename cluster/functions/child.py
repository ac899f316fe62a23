"""The process of one function of a user: imports its module, and calls it with batch after batch.

Started as a file, in a process that has nothing else of Fjord: what the function does to its process, to libraries in
it, to its output or to its arguments, which are copies, reaches no other query.

    in    lengths of both parts, JSON, Arrow IPC      {"module": ..., "attribute": ...}, then {"rows": 100} and columns
    out   the same                                    {"error": null} and a column, or {"error": "ValueError: ..."}

A call that takes too long is ended by the process that asked; if that has died, by the kernel, whatever the function is
in the middle of: its alarm has no handler.
"""

from __future__ import annotations

import ctypes
import io
import json
import os
import signal
import struct
import sys
import traceback
from typing import Any, BinaryIO

LENGTHS = struct.Struct(">IQ")
LONGEST_ERROR = 400
PR_SET_CHILD_SUBREAPER = 36
GRACE_SECONDS = 2.0
"""By so much later than the asking process, the kernel ends a call that takes too long."""


def main() -> None:
    """Serve until the input ends."""
    asked, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):  # what the function prints is no answer
        os.dup2(nowhere, standard)
    _keep_descendants()
    function, language, result = None, "polars", ""
    while (found := _read(asked)) is not None:
        header, columns = found
        signal.setitimer(signal.ITIMER_REAL, header["seconds"] + GRACE_SECONDS)
        body = b""
        try:
            if "module" in header:
                language, result = header["language"], header["result"]
                _bound(header["memory"])
                function, known = _loaded(header)
            else:
                body, known = _called(function, language, result, header, columns), {}
            answer = {"error": None, **known}
        except BaseException as error:  # noqa: BLE001 - SystemExit, too, is only an error of the function
            answer = {"error": _in_words(error)}
        signal.setitimer(signal.ITIMER_REAL, 0)
        text = json.dumps(answer).encode()
        answers.write(LENGTHS.pack(len(text), len(body)) + text + body)
        answers.flush()


def _keep_descendants() -> None:
    """Stay an ancestor of all that the function starts, also of what leaves its session: so it is ended, too."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _read(source: BinaryIO) -> tuple[dict[str, Any], bytes] | None:
    lengths = source.read(LENGTHS.size)
    if len(lengths) < LENGTHS.size:
        return None
    text, columns = LENGTHS.unpack(lengths)
    return json.loads(source.read(text)), source.read(columns)


def _bound(memory_bytes: int) -> None:
    """Let the operating system refuse more memory; no core is written when it does."""
    import resource  # noqa: PLC0415 - as few modules as possible before the first import of a user's

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))


def _loaded(header: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return the function, and what is known of it."""
    import importlib  # noqa: PLC0415 - as in main
    import inspect  # noqa: PLC0415 - as in main

    sys.path[:] = header["path"]
    found = getattr(importlib.import_module(header["module"]), header["attribute"])
    if not callable(found):
        raise TypeError(f"{header['attribute']} is a {type(found).__name__}, and cannot be called")
    count = header["parameters"]
    try:
        inspect.signature(found).bind(*range(count))
    except TypeError as error:
        raise TypeError(f"it cannot be called with {count} argument{'' if count == 1 else 's'}: {error}") from None
    except ValueError:  # it has no signature: it is written in C
        pass
    return found, {"defined": str(getattr(found, "__module__", ""))}


def _called(function: Any, language: str, result: str, header: dict[str, Any], columns: bytes) -> bytes:
    return (_with_arrow if language == "arrow" else _with_polars)(function, result, header["rows"], columns)


def _with_polars(function: Any, result: str, rows: int, columns: bytes) -> bytes:
    import polars as pl  # noqa: PLC0415 - a function that takes Arrow needs none

    given = pl.read_ipc_stream(io.BytesIO(columns)).get_columns()
    found = function(*given)
    if not isinstance(found, pl.Series):
        raise TypeError(f"it returned a {type(found).__name__}, not a polars.Series")
    _check_length(len(found), rows)
    kinds: dict[str, Any] = {"boolean": pl.Boolean, "integer": pl.Int64, "real": pl.Float64, "text": pl.String}
    whole, kind = found.dtype.is_integer(), found.dtype
    fits = {"real": kind.is_float() or whole, "integer": whole}.get(result, kind == kinds[result])
    if not (fits or kind == pl.Null):
        raise TypeError(f"it returned values of {kind}, not of {kinds[result]}, for {result.upper()}")
    out = io.BytesIO()
    found.cast(kinds[result]).alias("0").to_frame().write_ipc_stream(out)
    return out.getvalue()


def _with_arrow(function: Any, result: str, rows: int, columns: bytes) -> bytes:
    import pyarrow as pa  # noqa: PLC0415 - as in main

    table = pa.ipc.open_stream(columns).read_all()
    found = function(*(_as_array(column, pa) for column in table.columns))
    if isinstance(found, pa.ChunkedArray):
        found = found.combine_chunks()
    if not isinstance(found, pa.Array):
        raise TypeError(f"it returned a {type(found).__name__}, not a pyarrow.Array")
    _check_length(len(found), rows)
    is_a, kind = pa.types, found.type
    whole, text = is_a.is_integer(kind), is_a.is_string(kind) or is_a.is_large_string(kind)
    fits = {"boolean": is_a.is_boolean(kind), "integer": whole, "real": is_a.is_floating(kind) or whole, "text": text}
    wanted = {"boolean": pa.bool_(), "integer": pa.int64(), "real": pa.float64(), "text": pa.large_string()}[result]
    if not (fits[result] or is_a.is_null(kind)):
        raise TypeError(f"it returned values of {kind}, not of {wanted}, for {result.upper()}")
    # An integer that no real equals becomes the nearest one, as everywhere; one beyond 64 bits is an error.
    column = found.cast(wanted, safe=result == "integer")
    out = io.BytesIO()
    with pa.ipc.new_stream(out, pa.schema([("0", wanted)])) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays([column], ["0"]))
    return out.getvalue()


def _as_array(column: Any, pa: Any) -> Any:
    found = column.combine_chunks()
    return found.cast(pa.string()) if pa.types.is_large_string(found.type) else found


def _check_length(found: int, rows: int) -> None:
    if found != rows:
        raise ValueError(f"it returned {found:,} values for {rows:,} rows")


def _in_words(error: BaseException) -> str:
    """Return an error on one line, and where in the user's files it was raised."""
    words = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(": ")
    words = "".join(letter if letter.isprintable() else "?" for letter in words)
    words = words if len(words) <= LONGEST_ERROR else f"{words[:LONGEST_ERROR]} ..."
    frames = [each for each in traceback.extract_tb(error.__traceback__) if each.filename != __file__]
    frames = [each for each in frames if not each.filename.startswith("<")]
    return f"{words} ({os.path.basename(frames[-1].filename)}, line {frames[-1].lineno})" if frames else words  # noqa: PTH119


if __name__ == "__main__":
    main()
