"""Responses to requests that fail: one form of body for every error."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from cluster.errors import ClusterError, PlanError, StorageError, UnwritableError
from cluster.fjord.acceptance import RowLimitError
from cluster.fjord.upper_estimates import StateLimitError
from cluster.language.catalog import CatalogError
from cluster.language.errors import FjordSqlError
from cluster.language.statement_texts import StatementText
from cluster.physical.migration import MigrationRefusedError
from cluster.service.access.admission import NotAdmittedError
from cluster.service.catalog.function_service import UnknownFunctionError
from cluster.service.catalog.planning import PlanningBusyError
from cluster.service.catalog.relation_service import UnknownRelationError
from cluster.service.http.request_bodies import (
    DoubleKeyError,
    ParameterError,
    RequestTooLargeError,
    RequestTooSlowError,
)
from cluster.service.http.sensor_questions import QuestionFailedError, TooManyQuestionsError
from cluster.service.publishing.published_demands import TooManyDemandsError
from cluster.service.queries.query_alternatives import NoAlternativeError
from cluster.service.queries.size_decisions import NoRoomError
from cluster.service.registry.query_names import QueryExistsError, TooManyQueriesError, UnknownQueryError
from protocols.errors import FjordError, TopicError

_STATUSES: tuple[tuple[type[FjordError], int], ...] = (
    (UnknownQueryError, 404),
    (UnknownRelationError, 404),
    (UnknownFunctionError, 404),
    (NoAlternativeError, 404),
    (MigrationRefusedError, 409),
    (QueryExistsError, 409),
    (TooManyQueriesError, 429),
    (StateLimitError, 429),
    (NoRoomError, 429),
    (RowLimitError, 429),
    (TooManyDemandsError, 429),
    (CatalogError, 409),
    (FjordSqlError, 400),
    (PlanningBusyError, 429),
    (TooManyQuestionsError, 429),
    (QuestionFailedError, 400),
    (PlanError, 400),
    (TopicError, 400),
    (RequestTooLargeError, 413),
    (RequestTooSlowError, 408),
    (UnwritableError, 507),
    (StorageError, 503),
)
_MOST_SHOWN = 5
"""Problems of one request that are listed."""


_REASON: Final = {
    "type": "object",
    "required": ["error", "message", "hint"],
    "properties": {
        "error": {"type": "string", "description": "The kind of error."},
        "message": {"type": "string"},
        "hint": {"type": ["string", "null"], "description": "What to do."},
        "line": {"type": "integer", "description": "In the statement, from 1."},
        "column": {"type": "integer"},
        "underlined": {"type": "string", "description": "The line, with what is wrong underlined."},
    },
}
RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    status: {"description": description, "content": {"application/json": {"schema": _REASON}}}
    for status, description in (
        ("4XX", "The request is refused: for its form or content, its token or role, or as there is no room."),
        ("5XX", "The cluster could not answer; on 503 and 507 it may do so later."),
    )
}
"""How the description of the API describes the errors of all its routes; the form is that of :func:`error_body`."""


class RequestError(ClusterError):
    """A request that this API does not have: of another path, method or form, or that its sender may not make.

    Parameters
    ----------
    status
        The HTTP status.
    message, hint
        The problem, and what to do.
    """

    def __init__(self, status: int, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.status = status


class RefusedStatementError(ClusterError):
    """One of several statements is rejected, and so are all.

    Parameters
    ----------
    text
        All of them.
    statement
        The rejected one.
    cause
        Why, as if it had come alone.
    name
        That of its query; by default the statement's own.
    row
        The number of the row of values with which it is rejected, from 1; None if there are no rows.
    """

    def __init__(
        self,
        text: str,
        statement: StatementText,
        cause: FjordError,
        *,
        name: str | None = None,
        row: int | None = None,
    ) -> None:
        if isinstance(cause, FjordSqlError):
            cause = cause.within(text[text.rfind("\n", 0, statement.start) + 1 : statement.start], statement.line)
            message = cause.message
        else:
            message = f"{cause.message}, at line {statement.line}"
        name = name or statement.name
        named = "" if name is None else f"query {name!r}: "
        super().__init__(f"{named}{message}", hint=cause.hint)
        self.statement = statement
        self.cause = cause
        self.row = row
        self.others: tuple[RefusedStatementError, ...] = ()
        """More rejected ones of the same request."""


def handle_errors(api: FastAPI) -> None:
    """Make an API respond to all errors with :func:`error_body`, including those of the web framework."""

    @api.exception_handler(FjordError)
    async def refuse(_: Request, error: FjordError) -> JSONResponse:
        return error_response(error)

    @api.exception_handler(RequestValidationError)
    async def refuse_form(_: Request, error: RequestValidationError) -> JSONResponse:
        return error_response(RequestError(422, _problems_of(error), hint="GET /docs shows what each request takes"))

    @api.exception_handler(HTTPException)
    async def refuse_request(request: Request, error: HTTPException) -> JSONResponse:
        hint = "GET /docs shows all paths and methods" if error.status_code in {404, 405} else None
        if isinstance(error, DoubleKeyError | ParameterError):
            hint = error.hint
        described = RequestError(error.status_code, f"{request.method}: {error.detail}", hint=hint)
        return error_response(described, headers=dict(error.headers or {}))

    @api.exception_handler(Exception)
    async def fail(_: Request, __: Exception) -> JSONResponse:
        # It is raised again after this response, and logged with its traceback.
        return error_response(ClusterError("the cluster failed to answer", hint="the reason is in its log"))


class _ErrorResponse(JSONResponse):
    def render(self, content: Any) -> bytes:
        # An error may quote half a character, which a request can have written as an escape.
        return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def error_response(error: FjordError, *, headers: dict[str, str] | None = None) -> JSONResponse:
    """Return the response to an error."""
    return _ErrorResponse(error_body(error), status_code=_status_of(error), headers=headers)


def error_body(error: FjordError) -> dict[str, Any]:
    """Return an error as the API shows it."""
    body: dict[str, Any] = {"error": type(error).__name__, "message": error.message, "hint": error.hint}
    if isinstance(error, FjordSqlError):
        body |= {"line": error.line, "column": error.column, "underlined": error.underlined()}
    if isinstance(error, RefusedStatementError):
        body = {"line": error.statement.line, **error_body(error.cause), "message": error.message}
        body |= {} if error.row is None else {"row": error.row}
        body |= {"others": [error_body(each) for each in error.others]} if error.others else {}
    return body


def _status_of(error: FjordError) -> int:
    if isinstance(error, RequestError | NotAdmittedError):
        return error.status
    if isinstance(error, RefusedStatementError):
        return _status_of(error.cause)
    return next((status for kind, status in _STATUSES if isinstance(error, kind)), HTTPStatus.INTERNAL_SERVER_ERROR)


def _problems_of(error: RequestValidationError) -> str:
    """Return the problems and their places, without the request's content, which may hold a password."""
    problems = [f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()]
    more = [f"and {len(problems) - _MOST_SHOWN:,} more"] if len(problems) > _MOST_SHOWN else []
    return "; ".join([*problems[:_MOST_SHOWN], *more])
