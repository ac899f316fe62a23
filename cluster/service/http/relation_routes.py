"""The part of the HTTP API about relations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import APIRouter

from cluster.service.http.stream_routes import Declaration, PathName
from cluster.service.http.strict_requests import api_router

if TYPE_CHECKING:
    from cluster.service.catalog.relation_service import RelationService


def relation_routes(relations: RelationService) -> APIRouter:
    """Return the routes.

    Parameters
    ----------
    relations
        Creates, drops and describes them.
    """
    api = api_router()

    @api.get("/v1/relations")
    async def list_relations() -> list[dict[str, Any]]:
        """List relations: where each comes from, its state, and which queries read it."""
        return relations.all()

    @api.get("/v1/relations/{name}")
    async def show_relation(name: PathName) -> dict[str, Any]:
        """Return one relation."""
        return relations.describe(relations.find(name))

    @api.post("/v1/relations", status_code=201)
    async def declare_relation(new: Declaration) -> dict[str, Any]:
        """Execute CREATE RELATION or DROP RELATION; return the relation."""
        return await relations.execute(new.sql)

    @api.delete("/v1/relations/{name}", status_code=204)
    async def drop_relation(name: PathName) -> None:
        """Drop a relation that nothing reads."""
        await relations.drop(name)

    return api
