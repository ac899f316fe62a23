"""No process that a part starts gets tokens and passwords that only the part itself has a use for."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.demo import parts
from cluster.demo.parts import Children
from cluster.service.client.api_token import VARIABLE
from cluster.spark.java_process import SECRET
from protocols.child_process import SECRET_VARIABLES, child_environment
from protocols.mqtt.broker_address import PASSWORD_VARIABLE

ROOT = Path(__file__).parents[1]
PACKAGES = ("protocols", "firmware_sim", "proxy", "cluster")
ENVIRONMENT = "child_environment"
STARTS = re.compile(
    r"\bsubprocess\.(Popen|run|call|check_call|check_output|getoutput|getstatusoutput)$"
    r"|\bcreate_subprocess_(exec|shell)$|\.subprocess_(exec|shell)$"
    r"|\bos\.(exec\w+|spawn\w+|posix_spawnp?|system|popen|fork|forkpty)$|\bpty\.(spawn|fork)$"
    r"|\bmultiprocessing\b|\bProcessPoolExecutor$"
)
ENVIRONMENT_IS_CLEAN = {
    "cluster/spark/early_session.py": "a fork that only asks Java for a session",
    "cluster/spark/forking/parent.py": "forks, which forget secrets first",
    "cluster/spark/forking/stand_in.py": "started by Java, which has none",
    "protocols/child_process.py": "becomes the program that it was started for",
}
"""Where a process is forked, or becomes another one: none of these has an argument for variables."""
FORKS_AND_BECOMES = re.compile(r"\bos\.(exec\w+|fork)$")
SECRET_NAME = re.compile(r"FJORD_\w*(?:TOKEN|PASSWORD|SECRET)\b")

SHOWING = "import os\nprint(*os.environ, flush=True)\n"


def starts(text: str) -> Iterator[tuple[str, bool]]:
    """Yield each use of what starts a process, and whether it is given the right variables."""
    tree = ast.parse(text)
    given = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            wanted = any(each.arg == "env" and is_made_for_children(each.value, tree) for each in node.keywords)
            for each in (node.func, *node.args):
                given[id(each.value if isinstance(each, ast.Subscript) else each)] = wanted
        if isinstance(node, ast.Subscript) and id(node.value) not in given:
            given[id(node.value)] = True  # a type, as in `subprocess.Popen[bytes]`
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
            for name in node.names:
                full = f"{module}.{name.name}" if module else name.name
                if STARTS.search(full):  # a name of its own could be called anywhere
                    yield full, False
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Name) and STARTS.search(name := ast.unparse(node)):
            yield name, given.get(id(node), False)


def is_made_for_children(value: ast.expr, tree: ast.Module) -> bool:
    """Return whether variables are those for children, with more or fewer, directly or by a function."""
    called = calls_in(value)
    functions = {each.name: each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)}
    inside = {each for name in called & functions.keys() for each in calls_in(functions[name])}
    return not re.search(r"\benviron\b", ast.unparse(value)) and ENVIRONMENT in called | inside


def calls_in(tree: ast.AST) -> set[str]:
    """Return what is called in a piece of a program."""
    return {ast.unparse(each.func) for each in ast.walk(tree) if isinstance(each, ast.Call)}


def test_each_process_is_started_with_the_variables_for_children() -> None:
    found: dict[str, list[str]] = {}
    known = set()
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("*.py")):
            name = str(file.relative_to(ROOT))
            for start, wanted in starts(file.read_text("utf-8")):
                if name in ENVIRONMENT_IS_CLEAN and FORKS_AND_BECOMES.search(start):
                    known.add(name)
                elif not wanted:
                    found.setdefault(name, []).append(start)
    assert found == {}, f"start processes with env={ENVIRONMENT}()"
    assert known == ENVIRONMENT_IS_CLEAN.keys()


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        ("subprocess.run(['dot'], env=child_environment())", True),
        ("asyncio.to_thread(subprocess.run, ['dot'], env={**child_environment(), 'A': 'b'})", True),
        ("def own(): return child_environment()\nsubprocess.Popen(['dot'], env=own())", True),
        ("process: subprocess.Popen[bytes]", True),
        ("subprocess.run(['dot'])", False),
        ("subprocess.Popen[bytes](['dot'])", False),
        ("subprocess.run(['dot'], env={**os.environ, **child_environment()})", False),
        ("asyncio.create_subprocess_exec('dot')", False),
        ("def own(): return {}\nsubprocess.Popen(['dot'], env=own())", False),
        ("start = subprocess.run", False),
        ("from subprocess import run", False),
        ("import multiprocessing", False),
        ("os.fork()", False),
    ],
)
def test_starts_are_found(text: str, *, passes: bool) -> None:
    assert [wanted for _, wanted in starts(text)] == [passes]


def test_every_secret_variable_is_kept_from_children() -> None:
    named = {
        name
        for package in PACKAGES
        for file in (ROOT / package).rglob("*.py")
        for name in SECRET_NAME.findall(file.read_text("utf-8"))
    }
    assert {VARIABLE, PASSWORD_VARIABLE} <= named
    assert named | {SECRET} == SECRET_VARIABLES


def test_children_get_all_but_secrets() -> None:
    assert child_environment({"PATH": "/bin", **dict.fromkeys(SECRET_VARIABLES, "hidden")}) == {"PATH": "/bin"}


def test_parts_of_the_demonstration_get_no_secrets_but_those_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "showing.py").write_text(SHOWING)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    for name in SECRET_VARIABLES:
        monkeypatch.setenv(name, "hidden")
    with Children(tmp_path / "logs") as children:
        shown = [
            children.start("one", [], module="showing"),
            children.start("two", [], {VARIABLE: ""}, module="showing"),
        ]
        for child in shown:
            child.process.wait(parts.STOP_SECONDS)
        seen = [set(child.log.read_text().split()) & SECRET_VARIABLES for child in shown]
    assert seen == [set(), {VARIABLE}]
