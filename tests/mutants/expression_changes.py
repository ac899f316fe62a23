"""The mutants of expressions."""

from __future__ import annotations

import ast

from tests.mutants.opposites import (
    ARITHMETIC,
    CHECKS,
    COMPARISONS,
    FEW,
    MESSAGES,
    OPPOSITE,
    UNSWAPPED,
    WORDING,
    WRITTEN,
)
from tests.mutants.source_reading import SourceReader


class ExpressionChanges(SourceReader):
    """Collects the mutants of an expression and its operands."""

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        if not binds(node):
            texts = [self.operand(value) for value in node.values]
            other = " or " if isinstance(node.op, ast.And) else " and "
            self.add(node, "and and or", f"({other.join(texts)})")
            own = " and " if isinstance(node.op, ast.And) else " or "
            for place in range(len(texts)):
                kept = own.join([*texts[:place], *texts[place + 1 :]])
                self.add(node, "operand dropped", f"({kept})", texts[place])
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not | ast.USub) and not isinstance(node.operand, ast.Constant):
            self.add(node, "not and minus", self.operand(node.operand))
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        parts = [node.left, *node.comparators]
        for place, own in enumerate(node.ops):
            written = self.operand(parts[0])
            for number, (operator, right) in enumerate(zip(node.ops, parts[1:], strict=True)):
                word = COMPARISONS[type(own)] if number == place else WRITTEN[type(operator)]
                written += f" {word} {self.operand(right)}"
            self.add(node, "comparison", f"({written})")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if isinstance(node.op, ast.BitOr):
            self.add(node, "operand dropped", self.operand(node.left), self.text(node.right))
            self.add(node, "operand dropped", self.operand(node.right), self.text(node.left))
        elif type(node.op) in ARITHMETIC and not holds_text(node):
            other = ARITHMETIC[type(node.op)]
            self.add(node, "arithmetic", f"({self.operand(node.left)} {other} {self.operand(node.right)})")
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        if not binds(node.test) and not (holds_text(node.body) or holds_text(node.orelse)):
            self.add(node, "branch of an expression", self.operand(node.body))
            self.add(node, "branch of an expression", self.operand(node.orelse))
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self.add(node, "constant", str(not node.value))
        elif isinstance(node.value, int | float):
            self.add(node, "constant", repr(node.value + 1))
            if isinstance(node.value, int) and node.value <= FEW:
                self.add(node, "constant", f"({node.value - 1})")

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load) and node.id in OPPOSITE and node.id.strip("_").isupper():
            self.add(node, "opposite", OPPOSITE[node.id])

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if isinstance(node.ctx, ast.Load) and node.attr in OPPOSITE:
            self.add(node, "opposite", f"{self.text(node.value)}.{OPPOSITE[node.attr]}")
        self.visit(node.value)

    def visit_Call(self, node: ast.Call) -> None:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in MESSAGES or name.endswith("Error"):
            return
        if isinstance(node.func, ast.Name) and name in OPPOSITE:
            self.add(node.func, "opposite", OPPOSITE[name])
        if name == "reversed" and len(node.args) == 1:
            self.add(node, "order", f"list({self.text(node.args[0])})")
        arguments = [self.text(each) for each in node.args]
        keywords = [self._keyword(each) for each in node.keywords]
        if len(node.args) > 1 and name not in UNSWAPPED and not any(isinstance(a, ast.Starred) for a in node.args[:2]):
            swapped = [arguments[1], arguments[0], *arguments[2:], *keywords]
            self.add(node, "arguments swapped", f"{self.text(node.func)}({', '.join(swapped)})")
        for dropped in node.keywords:
            if dropped.arg is not None and dropped.arg not in WORDING | CHECKS:
                kept = [self._keyword(each) for each in node.keywords if each is not dropped]
                self.add(
                    node,
                    "argument dropped",
                    f"{self.text(node.func)}({', '.join([*arguments, *kept])})",
                    self._keyword(dropped),
                )
        self.visit(node.func)
        for each in node.args:
            self.visit(each)
        for keyword in node.keywords:
            if keyword.arg not in WORDING | CHECKS:
                self.visit(keyword.value)

    def _keyword(self, keyword: ast.keyword) -> str:
        name = "**" if keyword.arg is None else f"{keyword.arg}="
        return f"{name}{self.text(keyword.value)}"

    def visit_comprehension(self, node: ast.comprehension) -> None:
        self.visit(node.iter)
        for condition in node.ifs:
            if not binds(condition):
                self.add(condition, "condition", "True")
            self.visit(condition)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.visit(node.body)


def binds(node: ast.expr) -> bool:
    """Return whether an expression binds a name: without it, the code behind it would always fail."""
    return any(isinstance(each, ast.NamedExpr) for each in ast.walk(node))


def holds_text(node: ast.expr) -> bool:
    own = node if not isinstance(node, ast.BinOp) else None
    sides = [own] if own is not None else [node.left, node.right] if isinstance(node, ast.BinOp) else []
    return any(
        isinstance(side, ast.JoinedStr) or (isinstance(side, ast.Constant) and isinstance(side.value, str))
        for side in sides
    )
