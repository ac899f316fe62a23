"""Child processes: with no secrets of their parent's, and ended when it ends, even if it is killed with signal 9.

On Linux the kernel does it (``prctl(PR_SET_PDEATHSIG)``). The setting must be made in the child, before the wanted
program is executed, so a child starts as ``python child_process.py <parent's id> -- <program> ...``.
Elsewhere the program simply starts. The kernel forgets the setting when a program changes its user.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SECRET_VARIABLES: Final = frozenset({"FJORD_API_TOKEN", "FJORD_BROKER_PASSWORD", "PYSPARK_GATEWAY_SECRET"})
"""Variables for the one process that they were set for. Others may show theirs, or run code of users."""

_PR_SET_PDEATHSIG: Final = 1
_USAGE_EXIT_CODE: Final = 2
_CANNOT_START_EXIT_CODE: Final = 127
_OWN: Final = Path("/proc/self")
_BOUNDS_OF_VARIABLES: Final = slice(47, 49)
"""Where the kernel's numbers about a process, from its state on, have ``env_start`` and ``env_end``."""


def child_environment(variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables that a child process gets: all of this process, or of `variables`, but secrets.

    >>> child_environment({"PATH": "/bin", "FJORD_API_TOKEN": "secret"})
    {'PATH': '/bin'}
    """
    found = os.environ if variables is None else variables
    return {name: value for name, value in found.items() if name not in SECRET_VARIABLES}


def forget_secrets() -> None:
    """Remove secrets from the variables of this process, for a fork that needs none: its own forks have none either.

    On Linux also from where the kernel shows the variables with which a process began (``/proc/PID/environ``).
    """
    for secret in SECRET_VARIABLES:
        os.environ.pop(secret, None)
    if sys.platform != "linux":
        return
    numbers = (_OWN / "stat").read_text().rpartition(")")[2].split()
    start, end = map(int, numbers[_BOUNDS_OF_VARIABLES])
    secrets = {each.encode() for each in SECRET_VARIABLES}
    place = start
    for variable in ctypes.string_at(start, end - start).split(b"\0"):
        name, sign, value = variable.partition(b"=")
        if name in secrets:
            ctypes.memset(place + len(name + sign), ord("*"), len(value))
        place += len(variable) + 1


def ending_with_this_process(arguments: Sequence[str | Path]) -> list[str]:
    """Return arguments that run ``arguments`` as a child which gets SIGTERM when this process ends.

    Start it from a thread that lives as long as the child should: the kernel watches the starting thread.
    """
    return [sys.executable, str(Path(__file__).resolve()), str(os.getpid()), "--", *map(str, arguments)]


def end_forks_with_this_process() -> None:
    """Let each process that this one forks be killed when it ends, whatever that one is doing.

    On Linux only. The kernel watches the thread that forks; processes that forks fork in turn are bound to these.
    """
    if sys.platform != "linux":
        return
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    own = os.getpid()

    def bind() -> None:
        nonlocal own
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != own:  # it ended before the kernel had the setting
            os._exit(_USAGE_EXIT_CODE)
        own = os.getpid()

    os.register_at_fork(after_in_child=bind)


def python_module(name: str, *arguments: str) -> list[str]:
    """Return arguments that run a module of Fjord's with this Python.

    Modules are not looked for in the working folder: a folder `cluster` there, such as a cluster's data, would hide the
    package of this name.
    """
    return [sys.executable, "-P", "-m", name, *arguments]


def main(arguments: Sequence[str]) -> NoReturn:
    """Bind this process to its parent, then become the wanted program."""
    match arguments:
        case [parent, "--", program, *rest] if parent.isdigit():
            pass
        case _:
            sys.exit(_USAGE_EXIT_CODE)
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != int(parent):  # the parent ended before the kernel had the setting
            sys.exit(0)
    try:
        os.execvp(program, [program, *rest])  # noqa: S606 (no shell is wanted)
    except OSError as error:
        sys.stderr.write(f"cannot start {program}: {error.strerror}\n")
        sys.exit(_CANNOT_START_EXIT_CODE)


if __name__ == "__main__":
    main(sys.argv[1:])
