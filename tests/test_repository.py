"""Promises about the source as a whole: which room may import which, and that each dependency is explained."""

import ast
import importlib
import json
import re
import subprocess
import sys
import tomllib
from graphlib import CycleError, TopologicalSorter
from importlib.util import resolve_name
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PACKAGES = ("protocols", "firmware_sim", "proxy", "cluster")
# Inside cluster/, data and control run one way: a folder imports only folders to its left.
CLUSTER_LAYERS = ("expressions", "operators", "language", "plan", "physical", "fjord", "spark", "service")
# Hosts of the same plan, beside each other.
HOSTS = ("local", "spark")


def imports_of(file):
    """Full names of all modules that a file imports, wherever in it."""
    package = ".".join(file.relative_to(ROOT).parent.parts)
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = resolve_name("." * node.level + (node.module or ""), package)
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def crossings(folder, forbidden):
    """Imports in ``folder`` of something forbidden, as readable lines."""
    return [
        f"{file.relative_to(ROOT)} imports {name}"
        for file in sorted((ROOT / folder).rglob("*.py"))
        for name in imports_of(file)
        if any(name == each or name.startswith(f"{each}.") for each in forbidden)
    ]


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_meet_only_through_protocols(package):
    assert crossings(package, [other for other in PACKAGES if other not in {package, "protocols"}]) == []


@pytest.mark.parametrize("layer", CLUSTER_LAYERS)
def test_layers_of_the_cluster_import_only_what_is_below_them(layer):
    above = CLUSTER_LAYERS[CLUSTER_LAYERS.index(layer) + 1 :]
    assert crossings(f"cluster/{layer}", [f"cluster.{each}" for each in above]) == []


def test_hosts_of_a_plan_know_nothing_of_each_other_and_of_the_service():
    for host in HOSTS:
        others = [f"cluster.{each}" for each in (*HOSTS, "service") if each != host]
        assert crossings(f"cluster/{host}", others) == []
    for layer in CLUSTER_LAYERS[: CLUSTER_LAYERS.index("spark")]:
        assert crossings(f"cluster/{layer}", [f"cluster.{host}" for host in (*HOSTS, "testing")]) == []
    assert crossings("cluster/local", ["cluster.testing"]) == []
    assert crossings("cluster/testing", ["cluster.spark", "cluster.service"]) == []


def test_the_local_host_needs_no_spark():
    script = "import sys, cluster.local.trying, cluster.local.answer_formats; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert not {"pyspark", "pandas", "pyarrow", "deltalake", "fastapi"} & set(loaded)


def test_what_runs_plans_needs_no_parser():
    """Spark's workers are many."""
    script = """
import importlib, pkgutil, sys
for name in ("operators", "physical", "costs", "fjord", "spark"):
    package = importlib.import_module(f"cluster.{name}")
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)
print(*sys.modules)
"""
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert {"polars", "pyspark", "cluster.fjord.running_kinds"} <= set(loaded)
    assert not {"sqlglot", "cluster.language.translation"} & set(loaded)


def test_sources_of_relations_know_nothing_of_plans_and_hosts():
    others = [layer for layer in CLUSTER_LAYERS if layer not in {"language", "operators"}]  # these have columns
    assert crossings("cluster/relations", [f"cluster.{each}" for each in (*others, "ingest", "demo")]) == []
    unaware = [folder for folder in (*CLUSTER_LAYERS[:-1], "storage", "ingest") if (ROOT / "cluster" / folder).exists()]
    assert [line for folder in unaware for line in crossings(f"cluster/{folder}", ["cluster.relations"])] == []


def imports_within(package):
    """Each module of a package and the modules of the package that it imports, for its types too."""
    files = {".".join(each.relative_to(ROOT).with_suffix("").parts): each for each in (ROOT / package).rglob("*.py")}
    modules = {name.removesuffix(".__init__"): file for name, file in files.items()}
    named = {name: {each for each in imports_of(file) if each in modules} - {name} for name, file in modules.items()}
    # `from package import module` takes nothing of the package's own file.
    return {
        name: {each for each in found if not any(other.startswith(f"{each}.") for other in found)}
        for name, found in named.items()
    }


@pytest.mark.parametrize("package", PACKAGES)
def test_no_modules_of_a_package_import_each_other_in_a_circle(package):
    try:
        TopologicalSorter(imports_within(package)).prepare()
    except CycleError as error:
        pytest.fail(" <- ".join(error.args[1]))


ROOMS = re.findall(
    r"^\| `((?:protocols|firmware_sim|proxy|cluster)[\w/]*)` \|",
    (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"),
    re.MULTILINE,
)
"""The rooms of docs/architecture.md, each below all that it imports."""


def room_of(name):
    """The room that a module is in: the innermost folder that has a row; None for what every room may import."""
    parts = name.split(".")
    if parts[1:2] == ["errors"]:
        return None
    inside = ("/".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((each for each in inside if each in ROOMS), None)


def test_every_folder_is_a_room_and_every_room_a_folder():
    modules = [file.relative_to(ROOT) for package in PACKAGES for file in (ROOT / package).rglob("*.py")]
    assert [str(each) for each in modules if room_of(".".join(each.with_suffix("").parts)) is None
            and len(each.parts) > 2] == []  # fmt: skip
    assert [each for each in ROOMS if not (ROOT / each).is_dir()] == []
    assert len(ROOMS) == len(set(ROOMS))


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_rooms_that_stand_above_it(room):
    above = ROOMS[: ROOMS.index(room)]
    wrong = [
        f"{file.relative_to(ROOT)} imports {name}"
        for file in (ROOT / room).rglob("*.py")
        if room_of(".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")) == room
        for name in imports_of(file)
        if (other := room_of(name)) not in {None, room, *above} and other.partition("/")[0] == room.partition("/")[0]
    ]
    assert wrong == []


# So small a file is a rule, an operator, a clause, errors or a command; both sides of tokens need nothing else alike.
FEWEST_LINES = 40
SMALL = (
    *("rules/", "operators/", "execution/", "_clause.py"),
    *("errors.py", "__init__.py", "__main__.py", "command.py", "api_token.py"),
)


@pytest.mark.parametrize("package", PACKAGES)
def test_small_files_are_rules_and_operators(package):
    sizes = {str(file.relative_to(ROOT)): len(file.read_text().splitlines()) for file in (ROOT / package).rglob("*.py")}
    few = {name for name, lines in sizes.items() if lines < FEWEST_LINES}
    assert {name for name in few if not any(each in name for each in SMALL)} == set()


@pytest.mark.parametrize("package", ["protocols", "firmware_sim", "proxy"])
def test_what_runs_beside_a_gateway_needs_no_library_of_the_cluster(package):
    assert (
        crossings(package, ["pyspark", "pyarrow", "deltalake", "sqlglot", "fastapi", "uvicorn", "pandas", "psycopg"])
        == []
    )


def test_loggers_come_from_the_event_log_which_imports_structlog_when_somebody_logs():
    lines = [line for package in PACKAGES for line in crossings(package, ["structlog"])]
    assert {line.partition(" ")[0] for line in lines} == {"protocols/event_log.py", "protocols/event_format.py"}


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_say_that_they_are_typed(package):
    assert (ROOT / package / "py.typed").exists()


def test_every_dependency_has_its_reason_in_the_documentation():
    lists = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    wanted = {re.match(r"[a-z0-9-]+", each)[0] for group in lists for each in group}
    first_cells = re.findall(r"^\| ([^|]+) \|", (ROOT / "docs" / "dependencies.md").read_text(), re.MULTILINE)
    explained = {name for cell in first_cells for name in cell.split(", ")}
    assert wanted - explained == set()


@pytest.mark.parametrize(
    ("name", "target"), sorted(PROJECT["entry-points"]["fjord.commands"].items()), ids=lambda value: value
)
def test_every_command_has_its_module(name, target):
    module, _, attribute = target.partition(":")
    file = ROOT / f"{module.replace('.', '/')}.py"
    assert file.exists(), f"`fjord {name}` points to {module}"
    assert re.search(rf"^{attribute}\b.*= typer\.Typer\(", file.read_text(), re.MULTILINE)


CITING = ("protocols", "firmware_sim", "proxy", "cluster", "tests", "benchmarks", "examples", "docs")
# A citation is `papers/<file>.md section <n>`; several sections are joined by commas, "and" and "to".
NUMBER = r"\d+(?:\.\d+)*"
CITATION = re.compile(rf"\bpapers/(\w+\.md) (?:(?:sections?|table) )?({NUMBER}(?:(?:,| and|, and| to) {NUMBER})*)")


def citations():
    """Each mention of a paper: where it stands, the paper's file, and the sections it names."""
    for folder in CITING:
        for file in sorted((ROOT / folder).rglob("*")):
            if file.suffix in {".py", ".md", ".toml", ".sql"} and file != ROOT / "docs" / "papers" / "README.md":
                # A citation may run on in the next line, of a comment too.
                text = re.sub(r"\s+(?:# )?", " ", file.read_text(encoding="utf-8"))
                for mention in re.finditer(r"\bpapers/((?!README)\w+\.md)", text):
                    whole = CITATION.match(text, mention.start())
                    yield file.relative_to(ROOT), mention[1], re.findall(NUMBER, whole[2]) if whole else []


def test_every_citation_of_a_paper_has_its_section():
    headings = {
        file.name: set(re.findall(rf"^#+ ({NUMBER}) ", file.read_text(encoding="utf-8"), re.MULTILINE))
        for file in (ROOT / "docs" / "papers").glob("*.md")
    }
    found = list(citations())
    assert {paper for _, paper, _ in found} == set(headings) - {"README.md"}
    assert [f"{file} cites {paper} without a section" for file, paper, numbers in found if not numbers] == []
    assert [
        f"{file} cites {paper} section {number}, which is not there"
        for file, paper, numbers in found
        for number in numbers
        if number not in headings[paper]
    ] == []


def test_documents_from_elsewhere_are_not_cited():
    names = re.compile(r"(?<![\w/-])[a-z_]+\.md\b")
    here = {file.name for folder in CITING for file in (ROOT / folder).rglob("*.md")}
    missing = [
        f"{file.relative_to(ROOT)} names {name}"
        for folder in CITING
        for file in sorted((ROOT / folder).rglob("*"))
        if file.suffix in {".py", ".toml"}
        for name in names.findall(file.read_text(encoding="utf-8"))
        if name not in here
    ]
    assert missing == []


def test_every_decision_is_listed_by_its_title():
    folder = ROOT / "docs" / "decisions"
    records = {file.name: file.read_text(encoding="utf-8").splitlines()[0] for file in folder.glob("0*.md")}
    rows = re.findall(r"^\| \[(\d+)\]\(([\w-]+\.md)\) \| (.+) \|$", (folder / "README.md").read_text(), re.MULTILINE)
    assert {name: f"# {number}: {title}" for number, name, title in rows} == records
    assert len({number for number, _, _ in rows}) == len(rows)


def test_files_that_documents_name_are_there():
    missing = [
        f"{file.relative_to(ROOT)} names {name}"
        for file in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
        if file.name != "CHANGELOG.md"
        for name in re.findall(r"`([\w.]+(?:/[\w.]+)+\.(?:py|md|toml|txt|sql))", file.read_text(encoding="utf-8"))
        if not (ROOT / name).exists()
    ]
    assert missing == []


def test_tests_that_documents_name_are_there():
    named = [
        (file, *found)
        for file in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
        for found in re.findall(r"`(tests/[\w./]+\.py)::(test_\w+)`", file.read_text(encoding="utf-8"))
    ]
    assert named
    missing = [
        f"{file.relative_to(ROOT)} names {path}::{name}"
        for file, path, name in named
        if not re.search(rf"^(?:async )?def {name}\(", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert missing == []


def test_links_between_documents_lead_to_a_file():
    missing = [
        f"{file.relative_to(ROOT)} links to {target}"
        for file in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md"))
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", file.read_text(encoding="utf-8"))
        if not (file.parent / target).exists()
    ]
    assert missing == []


def test_links_to_headings_find_them():
    def anchors(page):
        headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
        return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}

    missing = [
        f"{file.relative_to(ROOT)} links to {target}#{anchor}"
        for file in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md"))
        for target, anchor in re.findall(r"\]\(([^)#:\s]*)#([^)]+)\)", file.read_text(encoding="utf-8"))
        if anchor not in anchors(file.parent / target if target else file)
    ]
    assert missing == []


def test_figures_of_the_readme_are_those_that_were_measured(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    headlines = importlib.import_module("headlines")
    kept = json.loads(headlines.MEASURED.read_text(encoding="utf-8"))
    assert list(kept) == ["machine", *(each.benchmark for each in headlines.HEADLINES)]
    _, _, rest = (ROOT / "README.md").read_text(encoding="utf-8").partition(headlines.BEGINS)
    assert rest.partition(headlines.ENDS)[0].strip() == headlines.table(kept)


def test_lines_of_documents_are_at_most_120_characters():
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    long = []
    for name in listed.split():
        if name.startswith("docs/papers/") or not (ROOT / name).exists():
            continue
        code = False
        for number, line in enumerate((ROOT / name).read_text("utf-8").splitlines(), 1):
            code ^= line.lstrip().startswith("```")
            # Tables and addresses cannot be broken.
            breakable = not code and not line.lstrip().startswith("|") and " " in line.strip()[:100]
            if len(line) > 120 and breakable:
                long.append(f"{name}:{number}")
    assert long == []
