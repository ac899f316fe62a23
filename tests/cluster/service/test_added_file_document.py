"""The file of docs/how-to/add-many-queries.md is added as the page shows, and its faulty one is refused as shown."""

from __future__ import annotations

import re
from pathlib import Path

from cluster.service.http.query_routes import TOGETHER
from tests.cluster.service.conftest import Service, application

PAGE = (Path(__file__).parents[3] / "docs" / "how-to" / "add-many-queries.md").read_text("utf-8")


async def test_the_page_shows_what_happens(service: Service) -> None:
    (sql,) = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
    (error,) = re.findall(r"error: (.*)", PAGE)
    async with application(service.parts()) as client:
        refused = (await client.post(TOGETHER, json={"sql": sql.replace("AVG(speed)", "AVG(sped)")})).json()
        added = (await client.post(TOGETHER, json={"sql": sql})).json()["queries"]
    assert refused["message"] == error
    assert "\n".join(f"{each['name']}  {each['topic']}" for each in added) in PAGE
