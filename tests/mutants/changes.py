"""The mutants of a module: slips that its author could have made.

Our own, on Python's syntax tree. mutmut 3 makes no mutants of decorated functions (ours are cached, properties,
dataclasses) nor of tables at the top of a module, which many rules are; cosmic-ray changes files in place, numbers
mutants by their place in a file, and draws none at random. Neither drops statements, arguments or alternatives.

Not mutated: texts (messages among them), documentation, types, assertions, representations, logging, decorators.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from tests.mutants.expression_changes import ExpressionChanges, binds, holds_text
from tests.mutants.mutant import Mutant, shortened
from tests.mutants.opposites import DECLARATIONS, SILENT, WORDING


def mutants_of(file: str, source: bytes) -> list[Mutant]:
    """Return all mutants of a module, in the order of their places; a few may not be Python, see :func:`differs`.

    Parameters
    ----------
    file
        Its name.
    source
        Its text.
    """
    finder = _StatementChanges(file, source)
    finder.block(ast.parse(source).body)
    return finder.found


def differs(mutant: Mutant, source: bytes) -> bool:
    """Return whether a mutant is Python, and another program than its source."""
    try:
        return ast.dump(ast.parse(mutant.applied(source))) != ast.dump(ast.parse(source))
    except SyntaxError:
        return False


class _StatementChanges(ExpressionChanges):
    """Walks the statements of a module."""

    def block(self, body: Sequence[ast.stmt]) -> None:
        """Visit statements one after the other."""
        for statement in body:
            before, self.statement = self.statement, self._head(statement)
            self.visit(statement)
            self.statement = before

    def _head(self, statement: ast.stmt) -> str:
        text = self.text(statement)
        body: list[ast.stmt] = getattr(statement, "body", [])
        if body:
            text = self.source[self.span(statement)[0] : self.span(body[0])[0]].decode()
        elif isinstance(statement, ast.Match):
            text = text.partition("\n")[0]
        return shortened(text)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if node.name in SILENT:
            return
        self.where.append(node.name)
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None:
                self.visit(default)
        self.block(node.body)
        self.where.pop()

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.where.append(node.name)
        self.block(node.body)
        self.where.pop()

    def visit_Import(self, node: ast.Import) -> None:
        """Make no mutants of it."""

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """Make no mutants of it."""

    def visit_Assert(self, node: ast.Assert) -> None:
        """Make no mutants of it."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Make no mutants of it."""

    def visit_Raise(self, node: ast.Raise) -> None:
        self.add(node, "error not raised", "pass")

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant) or _logs(node.value):
            return
        self.add(node, "statement removed", "pass")
        self.visit(node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        names = {each.id for each in node.targets if isinstance(each, ast.Name)}
        if names & WORDING or (not self.where and _is_type(node.value)):
            return
        if all(isinstance(each, ast.Attribute | ast.Subscript) for each in node.targets):
            self.add(node, "statement removed", "pass")
        if not self.where and not isinstance(node.targets[0], ast.Tuple):
            self._entries(node.value)
        self.visit(node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is None or (isinstance(node.target, ast.Name) and node.target.id in DECLARATIONS):
            return
        if not self.where:
            self._entries(node.value)
        self.visit(node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name) and node.target.id in WORDING:
            return
        self.add(node, "statement removed", "pass")
        if isinstance(node.op, ast.Add | ast.Sub) and not holds_text(node.value):
            other = "-=" if isinstance(node.op, ast.Add) else "+="
            self.add(node, "arithmetic", f"{self.text(node.target)} {other} {self.text(node.value)}")
        self.visit(node.value)

    def visit_If(self, node: ast.If) -> None:
        if "TYPE_CHECKING" in self.text(node.test):
            return
        self._condition(node.test)
        self.block(node.body)
        self.block(node.orelse)

    def visit_While(self, node: ast.While) -> None:
        if not isinstance(node.test, ast.Constant) and not binds(node.test):
            self.add(node.test, "condition", "False")
        self.visit(node.test)
        self.block(node.body)
        self.block(node.orelse)

    def _condition(self, test: ast.expr) -> None:
        if not binds(test):
            self.add(test, "condition", "True")
            self.add(test, "condition", "False")
        self.visit(test)

    def visit_For(self, node: ast.For) -> None:
        self.visit(node.iter)
        self.block(node.body)
        self.block(node.orelse)

    def visit_With(self, node: ast.With | ast.AsyncWith) -> None:
        for item in node.items:
            self.visit(item.context_expr)
        self.block(node.body)

    visit_AsyncWith = visit_With

    def visit_Try(self, node: ast.Try) -> None:
        self.block(node.body)
        for handler in node.handlers:
            self.block(handler.body)
        self.block(node.orelse)
        self.block(node.finalbody)

    def visit_Match(self, node: ast.Match) -> None:
        self.visit(node.subject)
        for case in node.cases:
            before, self.statement = self.statement, shortened(f"case {self.text(case.pattern)}")
            for pattern in ast.walk(case.pattern):
                if isinstance(pattern, ast.MatchOr):
                    self._alternatives(pattern)
            if case.guard is not None:
                self._condition(case.guard)
            self.block(case.body)
            self.statement = before

    def _alternatives(self, pattern: ast.MatchOr) -> None:
        for left_out in pattern.patterns:
            kept = [self.text(each) for each in pattern.patterns if each is not left_out]
            self.add(pattern, "alternative dropped", " | ".join(kept), self.text(left_out))

    def visit_Break(self, node: ast.Break) -> None:
        self.add(node, "break and continue", "continue")

    def visit_Continue(self, node: ast.Continue) -> None:
        self.add(node, "break and continue", "break")

    def _entries(self, table: ast.expr) -> None:
        """Note the loss of each entry of a table at the top of a module."""
        if isinstance(table, ast.Call) and len(table.args) == 1 and not table.keywords:
            table = table.args[0]
        if isinstance(table, ast.Dict):
            entries: list[str] = []
            for key, value in zip(table.keys, table.values, strict=True):
                entries.append(f"**{self.operand(value)}" if key is None else f"{self.text(key)}: {self.text(value)}")
            shape = "{%s}"
        elif isinstance(table, ast.Tuple | ast.List | ast.Set):
            entries = [self.text(each) for each in table.elts]
            shape = {ast.Tuple: "(%s,)", ast.List: "[%s]", ast.Set: "{%s}"}[type(table)]
        else:
            return
        for place in range(len(entries) if len(entries) > 1 else 0):
            kept = ", ".join([*entries[:place], *entries[place + 1 :]])
            self.add(table, "entry dropped", shape % kept, entries[place])


def _logs(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "log"
    )


def _is_type(node: ast.expr) -> bool:
    """Return whether a named value of a module is a type: a union or a subscript."""
    return isinstance(node, ast.Subscript) or (isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr))
