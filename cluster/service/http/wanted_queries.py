"""Queries that requests ask for: a statement, or each of a text, or one for each row of values of a template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

import msgspec
from pydantic import BeforeValidator, Field

from cluster.errors import OneOfManyError, PlanError
from cluster.language.errors import FjordSqlError
from cluster.language.parameter_values import Value, is_value
from cluster.language.parameters import MOST_VALUES, check_names, names_in
from cluster.language.statement_texts import StatementText, statements_in
from cluster.service.http.catalog_routes import MAX_SQL_CHARACTERS, StrictBody
from cluster.service.http.error_responses import RefusedStatementError, RequestError
from cluster.service.registry.running_queries import RegisteredQuery
from protocols.errors import FjordError
from protocols.wire import topics
from protocols.wire.names import folded

MOST_CHARACTERS_TOGETHER = 8_000_000
MOST_TOGETHER: Final = 100_000
"""Queries of one request: twice as many as run in a cluster by default."""


def _value(found: Any) -> Any:
    if not is_value(found):
        raise ValueError("a parameter is a number, a text, true, false or null")
    return found


Parameters = Annotated[
    dict[Annotated[str, Field(max_length=64)], Annotated[Value, BeforeValidator(_value)]],
    Field(max_length=MOST_VALUES),
]
"""Values by name of the parameter."""
Name = Annotated[str | None, Field(max_length=64)]


class Row(StrictBody):
    """One query of a template: its name, and its values."""

    name: Name = None
    parameters: Parameters = Field(default_factory=dict)


class WantedPlan(StrictBody):
    """A plan with which a query is to go on."""

    to: int = Field(ge=1, le=2**31)
    """Its number among the query's alternatives."""
    deadline_seconds: float | None = Field(default=None, ge=0, le=3.2e9, allow_inf_nan=False)
    """How long after the last tuple read it takes over if nothing bounds how far back it reaches."""


class NewQueries(StrictBody):
    """Queries to start together, as one text: its statements, or a query for each row of values."""

    sql: Annotated[str, Field(min_length=1, max_length=MOST_CHARACTERS_TOGETHER)]
    parameters: Parameters = Field(default_factory=dict)
    rows: Annotated[list[Row] | None, Field(min_length=1, max_length=MOST_TOGETHER, fail_fast=True)] = None


class NewQuery(StrictBody):
    """A query to start."""

    sql: Annotated[str, Field(min_length=1, max_length=MAX_SQL_CHARACTERS)]
    name: Name = None
    parameters: Parameters = Field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WantedQuery:
    """One of several queries to start: the number of its row, if it has one."""

    name: str | None
    statement: StatementText
    values: Mapping[str, Value]
    row: int | None = None


def wanted_queries(new: NewQueries) -> list[WantedQuery]:
    """Return the queries of a request.

    Raises
    ------
    RequestError
        If there is none, or rows are for several statements.
    RefusedStatementError
        If a statement is too long, or there is no parameter for a value.
    """
    statements = statements_in(new.sql, most=MOST_TOGETHER + 1)
    if not statements:
        raise RequestError(400, "there is no statement", hint="a query is written SELECT ... FROM stream")
    if len(statements) > MOST_TOGETHER:
        raise RequestError(400, f"there are more than {MOST_TOGETHER:,} statements", hint="send several requests")
    for each in statements:
        if len(each.text) > MAX_SQL_CHARACTERS:
            too_long = PlanError(f"a statement has at most {MAX_SQL_CHARACTERS:,} characters")
            raise RefusedStatementError(new.sql, each, too_long)
    if new.rows is None:
        try:
            check_names([each.text for each in statements], new.parameters)
        except FjordSqlError as error:
            raise RefusedStatementError(new.sql, statements[0], error) from error
        return [WantedQuery(each.name, each, _values_of(each.text, new.parameters)) for each in statements]
    if len(statements) > 1:
        raise RequestError(400, f"rows of values are for one statement, and the text has {len(statements):,}")
    (template,) = statements
    if template.name is not None and any(row.name is None for row in new.rows):
        hint = "leave the comment out, or give each row a name"
        raise RequestError(400, f"each row would be named {template.name!r}", hint=hint)
    return [
        WantedQuery(row.name, template, {**new.parameters, **row.parameters}, number)
        for number, row in enumerate(new.rows, start=1)
    ]


def begun_as_json(wanted: Sequence[WantedQuery], begun: Sequence[RegisteredQuery]) -> bytes:
    """Return the answer to a request whose queries have begun."""
    found = [
        {
            "name": query.name,
            "topic": topics.results(query.name),
            "epoch": query.since_epoch,
            "line": each.statement.line,
            **({} if each.row is None else {"row": each.row}),
        }
        for each, query in zip(wanted, begun, strict=True)
    ]
    return msgspec.json.encode({"queries": found})


def refusal_of(sql: str, wanted: Sequence[WantedQuery], error: OneOfManyError) -> RefusedStatementError:
    """Return the error about several queries of which some are rejected."""
    one, *others = (_refused(sql, wanted[each.place], each.cause) for each in (error, *error.others))
    one.others = tuple(others)
    return one


def _values_of(text: str, values: Mapping[str, Value]) -> dict[str, Value]:
    """Return those of some values that are for parameters of a statement."""
    names = names_in(text)
    return {name: value for name, value in values.items() if folded(name) in names}


def _refused(sql: str, query: WantedQuery, cause: FjordError) -> RefusedStatementError:
    return RefusedStatementError(sql, query.statement, cause, name=query.name, row=query.row)
