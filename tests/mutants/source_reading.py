"""Reading the text of a module's nodes, and collecting its mutants."""

from __future__ import annotations

import ast
from collections import Counter

from tests.mutants.mutant import Mutant, shortened

SourceNode = ast.expr | ast.stmt | ast.pattern


class SourceReader(ast.NodeVisitor):
    """Finds the text of nodes, and collects mutants.

    Parameters
    ----------
    file
        The name of a module.
    source
        Its text.
    """

    def __init__(self, file: str, source: bytes) -> None:
        self.found: list[Mutant] = []
        self.file = file
        self.source = source
        self.lines = [0]
        for line in source.splitlines(keepends=True):
            self.lines.append(self.lines[-1] + len(line))
        self.where: list[str] = []
        self.statement = ""
        self.seen: Counter[tuple[str, ...]] = Counter()

    def span(self, node: SourceNode) -> tuple[int, int]:
        """Return the offsets of a node's text, in bytes."""
        assert node.end_lineno is not None and node.end_col_offset is not None  # noqa: PT018 - both come from the parser
        start = self.lines[node.lineno - 1] + node.col_offset
        return start, self.lines[node.end_lineno - 1] + node.end_col_offset

    def text(self, node: SourceNode) -> str:
        """Return a node's text."""
        start, end = self.span(node)
        return self.source[start:end].decode()

    def operand(self, node: ast.expr) -> str:
        """Return the text of an expression, safe in any place."""
        text = self.text(node)
        simple = isinstance(node, ast.Name | ast.Constant | ast.Attribute | ast.Call | ast.Subscript | ast.Starred)
        return text if simple and "\n" not in text else f"({text})"

    def add(self, node: SourceNode, operator: str, replacement: str, shown: str | None = None) -> None:
        """Collect a mutant; `shown` is the changed part, if it is a small part of the replaced text."""
        start, end = self.span(node)
        before = shortened(self.text(node) if shown is None else shown)
        after = shortened(replacement) if shown is None else ""
        alike = (".".join(self.where), operator, self.statement, before, after)
        self.found.append(Mutant(self.file, *alike, self.seen[alike], start, end, replacement.encode()))
        self.seen[alike] += 1
