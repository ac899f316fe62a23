"""Child processes that end when their parent ends, even when the parent is killed with signal 9.

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
    from collections.abc import Sequence

_PR_SET_PDEATHSIG: Final = 1
_USAGE_EXIT_CODE: Final = 2
_CANNOT_START_EXIT_CODE: Final = 127


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
