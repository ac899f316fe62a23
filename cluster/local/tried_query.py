"""A query over files, translated as in a cluster: which names it may use, and what to do if it cannot be tried."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from cluster.expressions.user_functions import UserFunction
from cluster.language.catalog import BaseStream, Catalog, Entry, StaticRelation
from cluster.language.dialect import tokens_of
from cluster.language.errors import FjordSqlError
from cluster.language.translation import Query, translate
from cluster.local.joined_files import JoinedFiles, why_text
from cluster.local.stream_files import StreamFile
from cluster.local.table_files import TableFile
from protocols.text.plain_text import printable
from protocols.wire.names import folded
from protocols.wire.streams import FieldType

ELSEWHERE = {
    "EVENTS": "events are detected by motes and proxies, in samples that come much faster than a file keeps them",
    "COMPLETENESS": "only proxies can tell which samples are missing; a file does not record them",
}
"""Clauses whose answers are made outside the cluster."""


StreamFiles = StreamFile | JoinedFiles
"""The files that the tuples of a stream come from."""


@dataclass(frozen=True, slots=True)
class Files:
    """The files that a query is tried on.

    Parameters
    ----------
    streams
        By name.
    relations
        By name.
    unnamed
        The file of the one stream in the query that no other file is for; None if there is none.
    functions
        Functions of users that the query may call.
    """

    streams: Mapping[str, StreamFiles]
    relations: Mapping[str, TableFile] = field(default_factory=dict)
    unnamed: StreamFiles | None = None
    functions: tuple[UserFunction, ...] = ()

    @property
    def tables(self) -> Sequence[TableFile]:
        """All files."""
        streams = [*self.streams.values(), *([] if self.unnamed is None else [self.unnamed])]
        return [*(table for each in streams for table in each.tables), *self.relations.values()]


@dataclass(frozen=True, slots=True)
class TriedQuery:
    """A query that can be tried.

    Parameters
    ----------
    query
        The translated query.
    streams
        Those that files are given for, by name.
    untyped
        Warnings of columns that the query names and no file has a value of.
    renamed
        Notes of columns that have other names in files, which the query does not name.
    """

    query: Query
    streams: Mapping[str, StreamFiles]
    untyped: Sequence[str]
    renamed: Sequence[str]


def translate_over(sql: str, files: Files) -> TriedQuery:
    """Translate a query with the names of files.

    Raises
    ------
    FjordSqlError
        If it cannot be translated or tried; the hint names the columns of files.
    """
    words = _refuse_elsewhere(sql)
    streams = dict(files.streams)
    entries: list[Entry] = [BaseStream(file.schema(name), file.time_column) for name, file in streams.items()]
    entries += [StaticRelation(name, f"{name}@1", file.columns) for name, file in files.relations.items()]
    known = dict(Catalog.of(entries).entries)
    unnamed = files.unnamed
    while True:
        untyped = [*_untyped({**streams, **files.relations}, words)]
        try:
            query = translate(sql, Catalog(known).with_functions(files.functions))
            return TriedQuery(query, streams, untyped, [*_renamed(streams, files.relations, words)])
        except FjordSqlError as error:
            unknown = _NO_STREAM.match(error.reason)
            if unknown is None:
                raise _with_columns(error, {**streams, **files.relations}, untyped) from None
            name = unknown["name"]
            if unnamed is None:
                raise _without_file(error, name) from None
            known[name.casefold()] = BaseStream(unnamed.schema(name), unnamed.time_column)
            streams[name], unnamed = unnamed, None


_NO_STREAM = re.compile(r"there is no stream '(?P<name>[^']*)'")
_NO_ITEM = re.compile(r"FROM has no stream '(?P<name>[^']*)'")
_NO_COLUMN = re.compile(r"(there is no column|has no column) ('(?P<name>[^']*)')?")


def _without_file(error: FjordSqlError, name: str) -> FjordSqlError:
    meant = f"{error.hint} If not: " if (error.hint or "").startswith("did you mean") else ""
    return FjordSqlError(
        f"no file is given for {name!r}", text=error.text, start=error.start, end=error.end,
        hint=f"{meant}--on {name}=FILE for a stream, --relation {name}=FILE for a relation; in place of a derived "
        "stream, write the query in parentheses",
    )  # fmt: skip


def _with_columns(
    error: FjordSqlError, known: Mapping[str, StreamFiles | TableFile], untyped: Sequence[str]
) -> FjordSqlError:
    """Return an error with a hint about files: columns that they have, or have no value of."""
    hints = [] if error.hint is None else [error.hint]
    missing = _NO_COLUMN.search(error.reason)
    # A file may have it where the query no longer does: behind COALESCE, or of a query in FROM.
    held = {column.name.casefold() for file in known.values() for column in file.columns}
    if missing and (missing["name"] or "").casefold() not in held:
        # A hint that lists columns would repeat them.
        hints = [each for each in hints if not each.startswith("columns are")]
        hints.append("; ".join(f"{name} ({file.name}) has {_held(file)}" for name, file in known.items()))
    named = _NO_ITEM.match(error.reason)
    if named:
        tables = [each for file in known.values() for each in _tables(file) if named["name"] in each.nested]
        hints = [each.how_nested_of(named["name"]) for each in tables[:1]] or hints
    if causes := [*_why_texts(error, known)]:
        hints = [*causes, *(f"or {each}" for each in hints if not each.startswith("convert it: CAST"))]
        hints = ["; ".join(hints)]
    elif numbered := [*_numbers_beside_texts(error, known)]:
        hints = [f"--text {name} reads it as TEXT in every file" for name in numbered]
    for file in known.values():
        for new, name in _tables(file)[0].renamed.items():
            if name.casefold() in error.text.casefold():
                hints.append(f"column '{printable(name, lines=False)}' of {file.name} is {new} in FjordSQL")
    # A column of unknown type may be the only cause of the error.
    hint = "; ".join([*untyped, " ".join(hints)] if hints else untyped)
    return FjordSqlError(error.reason, text=error.text, start=error.start, end=error.end, hint=hint or None)


_NO_NUMBER = re.compile(
    r"a number was expected here, but this is text|\b(text and (integer|real)|(integer|real) and text) "
)


def _why_texts(error: FjordSqlError, known: Mapping[str, StreamFiles | TableFile]) -> Iterator[str]:
    """Yield why columns in the offending part of a text are TEXT, if numbers were expected there."""
    if not _NO_NUMBER.search(error.reason):
        return
    words = dict.fromkeys(re.findall(r"\w+", error.offending))
    for table in (each for file in known.values() for each in _tables(file)):
        yield from (cause for word in words if (cause := why_text(table, word)))


def _numbers_beside_texts(error: FjordSqlError, known: Mapping[str, StreamFiles | TableFile]) -> Iterator[str]:
    """Yield the columns of numbers that an offending part compares with columns of texts."""
    if not error.reason.startswith("cannot compare") or not _NO_NUMBER.search(error.reason):
        return
    words = {folded(word) for word in re.findall(r"\w+", error.offending)}
    named = [each for file in known.values() for each in file.columns if folded(each.name) in words]
    if any(each.type is FieldType.TEXT for each in named):
        numbers = (each.name for each in named if each.type in (FieldType.INTEGER, FieldType.REAL))
        yield from dict.fromkeys(numbers)


def _held(file: StreamFiles | TableFile) -> str:
    names = _tables(file)[0].renamed
    columns = ", ".join(
        f"{each.name} ('{printable(names[each.name], lines=False)}' in the file)" if each.name in names else each.name
        for each in file.columns
    )
    left_out = [f" ({table.without})" for table in _tables(file)[:1] if table.unusable]
    return "".join([columns, *left_out])


def _tables(file: StreamFiles | TableFile) -> Sequence[TableFile]:
    return (file,) if isinstance(file, TableFile) else file.tables


def _untyped(known: Mapping[str, StreamFiles | TableFile], words: Collection[str]) -> Iterator[str]:
    for file in known.values():
        for column in file.untyped:
            if column.casefold() in words:
                has = f"column {column} of {file.name} has no value, and is taken for TEXT"
                yield f"{has}: --type {column}=REAL (or INTEGER, BOOLEAN, TEXT) sets its type"


def _renamed(
    streams: Mapping[str, StreamFiles], relations: Mapping[str, TableFile], words: Collection[str]
) -> Iterator[str]:
    """Yield notes of columns that have other names in files, unless a query knows them."""
    for file in (*streams.values(), *relations.values()):
        table = _tables(file)[0]
        fields = {each.name for each in file.columns}
        unknown = {new: name for new, name in table.renamed.items() if new in fields and new.casefold() not in words}
        if unknown:
            names = ", ".join(f"'{printable(name, lines=False)}' is {new}" for new, name in unknown.items())
            yield f"{table.name}: column {names} in FjordSQL"


def _refuse_elsewhere(sql: str) -> frozenset[str]:
    """Return the words of a text; raise if it uses clauses that other parts of a deployment carry out."""
    try:
        tokens = tokens_of(sql)
    except Exception:  # noqa: BLE001 - the translation rejects what cannot be read, with its own message
        return frozenset()
    for token, following in pairwise(tokens):
        word = token.text.upper()
        if following.text == "(" and word in ELSEWHERE:
            raise FjordSqlError(
                f"{word}(...) cannot be tried on files: {ELSEWHERE[word]}",
                text=sql, start=token.start, end=token.end + 1,
                hint="`fjord motes run --trace FILE --resample` lets simulated motes sample a file for a real cluster",
            )  # fmt: skip
    if tokens and tokens[0].text.upper() in ("CREATE", "DROP"):
        raise FjordSqlError(
            "a declaration cannot be tried on files, only a query",
            text=sql, start=tokens[0].start, end=tokens[0].end + 1,
            hint="a stream is given with --on NAME=FILE, a relation with --relation NAME=FILE; where the name of a "
            "derived stream stands, write its query in parentheses",
        )  # fmt: skip
    return frozenset(token.text.casefold() for token in tokens)
