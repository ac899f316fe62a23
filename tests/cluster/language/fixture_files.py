"""Reading fixture files: a query that ends with a semicolon, the expected text, a semicolon alone on its line."""

from __future__ import annotations

from pathlib import Path


def pairs(folder: Path) -> list[tuple[str, str, str]]:
    """Name, query and expected text of every pair in the files of `folder`."""
    return [pair for path in sorted(folder.glob("*.sql")) for pair in _pairs_of(path)]


def _pairs_of(path: Path) -> list[tuple[str, str, str]]:
    found = []
    title = ""
    parts: list[list[str]] = [[]]
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("-- ") and not any(parts):
            title = line.removeprefix("-- ")
        elif line == ";" or (len(parts) == 1 and line.endswith(";")):
            parts[-1].append(line.removesuffix(";"))
            parts.append([])
        elif line or parts != [[]]:
            parts[-1].append(line)
        if len(parts) == 3:
            query, expected, _ = ("\n".join(part).strip() for part in parts)
            found.append((f"{path.stem}: {title or query}", query, expected))
            title, parts = "", [[]]
    return found
