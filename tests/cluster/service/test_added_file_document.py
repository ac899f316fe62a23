"""The file of docs/how-to/add-many-queries.md is added as the page shows, and its faulty one is refused as shown."""

from __future__ import annotations

import re
from pathlib import Path

from cluster.language.parameters import names_in
from cluster.service.client.api_client import RefusedError
from cluster.service.http.query_routes import TOGETHER
from cluster.service.query_file import read_rows, refused_rows
from tests.cluster.service.conftest import Service, application

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "how-to" / "add-many-queries.md").read_text("utf-8")


async def test_the_page_shows_what_happens(service: Service) -> None:
    (sql,) = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
    error, _ = re.findall(r"error: (.*)", PAGE)
    async with application(service.parts()) as client:
        refused = (await client.post(TOGETHER, json={"sql": sql.replace("AVG(speed)", "AVG(sped)")})).json()
        added = (await client.post(TOGETHER, json={"sql": sql})).json()["queries"]
    assert refused["message"] == error
    assert "\n".join(f"{each['name']}  {each['topic']}" for each in added) in PAGE


async def test_a_template_gives_a_query_for_each_row_as_the_page_shows(service: Service, tmp_path: Path) -> None:
    (template,) = re.findall(r"```sql template\n(.*?)```", PAGE, re.DOTALL)
    (values,) = re.findall(r"```csv\n(.*?)```", PAGE, re.DOTALL)
    file = tmp_path / "values.csv"
    file.write_text(values)
    async with application(service.parts()) as client:
        for texts in (["limit"], []):
            rows = read_rows(file, texts, names_in(template))
            sent = [{"name": each.name, "parameters": each.values} for each in rows]
            answer = (await client.post(TOGETHER, json={"sql": template, "rows": sent})).json()
            if texts:
                shown = refused_rows(RefusedError(answer), rows, Path("values.csv")).message
                assert f"error: {shown.partition(':')[0]}" in PAGE
                assert all(line in PAGE for line in shown.splitlines()[:4])
    shown = "\n".join(f"{each['name']}  {each['topic']}" for each in answer["queries"])
    assert f"--set-from values.csv\n{shown}\n" in PAGE
