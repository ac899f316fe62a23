"""The mutants of pieces of source."""

from __future__ import annotations

import textwrap

import pytest

from tests.mutants.changes import differs, mutants_of


def mutated(source: str) -> set[tuple[str, str]]:
    """Return operator and mutated text of the mutants."""
    text = textwrap.dedent(source).strip()
    found = mutants_of("m.py", text.encode())
    return {(each.operator, each.applied(text.encode()).decode()) for each in found if differs(each, text.encode())}


@pytest.mark.parametrize(("source", "expected"), [
    ("a < b", {("comparison", "(a <= b)"), ("statement removed", "pass")}),
    ("x = a == b != c", {("comparison", "x = (a != b != c)"), ("comparison", "x = (a == b == c)")}),
    ("x = a in b", {("comparison", "x = (a not in b)")}),
    ("x = a is None", {("comparison", "x = (a is not None)")}),
    ("x = a + b * c", {("arithmetic", "x = (a - (b * c))"), ("arithmetic", "x = a + (b + c)")}),
    ("x = 'a' + b", set()),
    ("x = f(A | B)", {("operand dropped", "x = f(A)"), ("operand dropped", "x = f(B)")}),
    ("x = a and b", {("and and or", "x = (a or b)"), ("operand dropped", "x = (a)"), ("operand dropped", "x = (b)")}),
    ("x = not a", {("not and minus", "x = a")}),
    ("x = -a", {("not and minus", "x = a")}),
    ("x = 2", {("constant", "x = 3"), ("constant", "x = (1)")}),
    ("x = 100", {("constant", "x = 101")}),
    ("x = True", {("constant", "x = False")}),
    ("x = b if a else c", {("branch of an expression", "x = b"), ("branch of an expression", "x = c")}),
    ("x = 'b' if a else c", set()),
    ("x = f(a, b)", {("arguments swapped", "x = f(b, a)")}),
    ("x = f(a, k=b)", {("argument dropped", "x = f(a)")}),
    ("x = f(a, hint=not b)", set()),
    ("x = f(a, strict=True)", set()),
    ("x = min(a)", {("opposite", "x = max(a)")}),
    ("x = a.left", {("opposite", "x = a.right")}),
    ("x = g(START)", {("opposite", "x = g(END)")}),
    ("x = reversed(a)", {("order", "x = list(a)")}),
    ("x = [a for a in b if a]", {("condition", "x = [a for a in b if True]")}),
    ("x = [(y := a), y if y else z]", {
        ("entry dropped", "x = [y if y else z]"), ("entry dropped", "x = [y := a]"),
        ("branch of an expression", "x = [(y := a), y]"), ("branch of an expression", "x = [(y := a), z]"),
    }),
    ("T = {A: b, C: d}", {("entry dropped", "T = {C: d}"), ("entry dropped", "T = {A: b}")}),
    ("T = frozenset({a, b})", {("entry dropped", "T = frozenset({b})"), ("entry dropped", "T = frozenset({a})")}),
    ("a, b = c, d", set()),
    ("x += a", {("statement removed", "pass"), ("arithmetic", "x -= a")}),
    ("x.y = a", {("statement removed", "pass")}),
    ("raise E(a < b)", {("error not raised", "pass")}),
    # Not mutated:
    ("assert a < b", set()),
    ("Type = A | B", set()),
    ("x: A | B = c", set()),
    ("log.info('a', b=not c)", set()),
    ("reason = a if b else c", set()),
    ("arg_types: D = {a: True, b: False}", set()),
    ("x = f'{a + 1}'", set()),
    ("from a import b", set()),
    ("if TYPE_CHECKING:\n    x = 1", set()),
])  # fmt: skip
def test_mutants_of_a_statement(source, expected):
    assert mutated(source) == expected


def test_mutants_of_blocks():
    found = mutated(
        '''
        class C:
            """A < B."""

            @cache(size=1)
            def f(self, x: A | B = 5) -> A | B:
                """A < B."""
                if x:
                    return a
                while (y := x):
                    break
                for z in b:
                    self.error(a < b, "message")
                    continue
                match x:
                    case A() | B() if x:
                        pass

            def __repr__(self):
                return a + b
        '''
    )
    kinds = sorted(operator for operator, _ in found)
    assert kinds == [
        *("alternative dropped", "alternative dropped"),
        *("break and continue", "break and continue"),
        *("condition", "condition", "condition", "condition"),
        *("constant", "statement removed"),
    ]


SOURCE = b"""
def f(a):
    if a == 1:
        return 1
    if a == 1:
        return 1
    return g(a == 1)
"""


def test_a_mutant_is_identified_by_its_surroundings():
    found = mutants_of("m.py", SOURCE)
    assert len({each.identity for each in found}) == len(found)
    (first, second, third) = (each for each in found if each.operator == "comparison")
    assert (first.statement, first.where, first.before, first.after) == ("if a == 1:", "f", "a == 1", "(a != 1)")
    assert (first.occurrence, second.occurrence, third.occurrence) == (0, 1, 0)
    assert (first.line(SOURCE), third.statement) == (3, "return g(a == 1)")
    moved = mutants_of("m.py", b"import x\n\n\ny = 5\n" + SOURCE.replace(b"(a):", b"(a):\n    h()"))
    assert {each.identity for each in found} <= {each.identity for each in moved}


def test_texts_of_several_bytes_do_not_shift_later_mutants():
    source = 'x = "ß…"; y = a < b'.encode()
    (found,) = (each for each in mutants_of("m.py", source) if each.operator == "comparison")
    assert found.applied(source).decode() == 'x = "ß…"; y = (a <= b)'
