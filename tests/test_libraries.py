"""Promises about libraries: what they may put beside our packages, and what of them is used."""

import ast
import re
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("protocols", "firmware_sim", "proxy", "cluster")
EVERYDAY = {"test", "tests", "example", "examples", "doc", "docs", "benchmark", "benchmarks", "scripts", "utils"}
"""Folders of ours, or of users: a library that has one beside its own is imported in their place."""
PRIVATE = re.compile(r"^_[^_]|^__.*(?<!__)$")
REASONED = {
    "cluster/spark/session.py": "py4j and Spark have no other way to which connections are taken, to logs and to files",
    "cluster/spark/hosting.py": "no setting of Spark's reaches threads without a session",
    "cluster/language/dialect.py": "sqlglot gives every dialect the comments of Jinja",
    "cluster/language/parsing.py": "a method of our own subclass of sqlglot's parser",
    "protocols/acquisition/merging.py": "another object of the same class",
}

TYPES = {
    f"protocols/command_line/{name}.py": "typer has its own click inside, and names its types nowhere else"
    for name in ("application", "options")
}


def required(name):
    """Names of a distribution and of all that it requires, with every extra of ours, as far as they are installed."""
    found, waiting = set(), [name]
    while waiting:
        one = waiting.pop()
        if one in found:
            continue
        try:
            requirements = metadata.requires(one) or []
        except metadata.PackageNotFoundError:
            continue  # for another platform, or an extra that nothing asks for
        found.add(one)
        wanted = [each for each in requirements if one == name or "extra ==" not in each]
        waiting += [re.match(r"[\w.-]+", each)[0].lower() for each in wanted]
    return found


def test_no_dependency_puts_an_everyday_name_beside_its_own():
    names = required("fjord")
    assert {"amqtt", "pyspark", "pytest", "polars"} <= names
    names -= {"fjord"}  # where it is installed from a checkout, its files are those of the checkout
    tops = {
        name: {each.parts[0] for each in metadata.files(name) or () if len(each.parts) > 1} & EVERYDAY for name in names
    }
    assert {name: found for name, found in tops.items() if found} == {}


def private_imports(file):
    """Private modules, and private names of modules, that a file imports from elsewhere."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names = [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [f"{node.module}.{each.name}" for each in node.names]
        else:
            continue
        yield from (
            name
            for name in names
            if name.partition(".")[0] not in {*PACKAGES, "__future__"}
            and any(PRIVATE.match(part) for part in name.split("."))
        )


@pytest.mark.parametrize("package", PACKAGES)
def test_no_private_name_of_a_library_is_used(package):
    """Ruff reports private attributes, so that only those with an exception are left to be looked for."""
    files = sorted((ROOT / package).rglob("*.py"))
    imported = {str(file.relative_to(ROOT)): list(private_imports(file)) for file in files}
    assert {name for name, found in imported.items() if found} == {each for each in TYPES if each.startswith(package)}
    assert all(name.startswith("typer._click.") for found in imported.values() for name in found)
    excepted = {str(file.relative_to(ROOT)) for file in files if "SLF001" in file.read_text()}
    assert excepted == {name for name in REASONED if name.startswith(f"{package}/")}
