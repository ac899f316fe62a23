"""The part of the HTTP API about functions of users."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import APIRouter

from cluster.service.http.stream_routes import Declaration, PathName
from cluster.service.http.strict_requests import api_router

if TYPE_CHECKING:
    from cluster.service.catalog.function_service import FunctionService


def function_routes(functions: FunctionService) -> APIRouter:
    """Return the routes.

    Parameters
    ----------
    functions
        Creates, drops and describes them.
    """
    api = api_router()

    @api.get("/v1/functions")
    async def list_functions() -> list[dict[str, Any]]:
        """List functions: where each comes from, its types, and what calls it."""
        return functions.all()

    @api.get("/v1/functions/{name}")
    async def show_function(name: PathName) -> dict[str, Any]:
        """Return one function."""
        return functions.describe(functions.find(name))

    @api.post("/v1/functions", status_code=201)
    async def declare_function(new: Declaration) -> dict[str, Any]:
        """Execute CREATE FUNCTION or DROP FUNCTION; return the function."""
        return await functions.execute(new.sql)

    @api.delete("/v1/functions/{name}", status_code=204)
    async def drop_function(name: PathName) -> None:
        """Drop a function that nothing calls."""
        await functions.drop(name)

    return api
