"""What Spark runs in place of Python: it has the forking parent run a module, and lasts as long as the fork does.

When the Java that runs it ends, it ends, and so does the fork, whatever that is doing.

    python -I -S stand_in.py SOCKET PYTHON -m MODULE ARGUMENT...

There is one such process beside each fork, so it imports as little as possible. Where no parent answers, and for
anything but a module, it becomes Python.
"""

import contextlib
import os
import select
import signal
import socket
import struct
import sys
import time

LENGTH = struct.Struct("!I")
NUMBER = struct.Struct("!i")
"""The process that was forked; later, the code that it ended with."""
STANDARD_DESCRIPTORS = (0, 1, 2)
UNKNOWN_EXIT_CODE = 1
POLLING_SECONDS = 0.5
JAVA_SECONDS = 1.0
"""Between two looks at whether Java runs. The kernel could tell, but of the thread of Java that began this process."""
VERSION_QUESTION = "import sys; print('%d.%d' % sys.version_info[:2])"
"""What Spark has Python run once, to compare versions."""
VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"
_SEPARATOR = b"\0"  # what neither an argument nor a variable contains


def packed_request(folder: bytes, arguments: list[bytes], environment: dict[bytes, bytes]) -> bytes:
    """Return what the parent reads: where to run a module, which one with which arguments, and its variables."""
    variables = [name + b"=" + value for name, value in environment.items()]
    return _SEPARATOR.join([folder, str(len(arguments)).encode(), *arguments, *variables])


def unpacked_request(request: bytes) -> tuple[bytes, list[bytes], dict[bytes, bytes]]:
    """Return what :func:`packed_request` was given."""
    folder, count, *rest = request.split(_SEPARATOR)
    end = int(count)
    pairs = (variable.partition(b"=") for variable in rest[end:])
    return folder, rest[:end], {name: value for name, _, value in pairs}


def exit_code_of_a_fork(path: str, arguments: list[bytes]) -> int | None:
    """Have a fork run a module; return its exit code once it has ended, or None if no parent answers.

    Parameters
    ----------
    path
        The parent's socket.
    arguments
        The module, and what it finds in `sys.argv` after its own name.
    """
    java = os.getppid()
    folder = os.getcwdb()  # noqa: PTH109 - pathlib takes longer to import than all else here
    request = packed_request(folder, arguments, dict(os.environb))
    with socket.socket(socket.AF_UNIX) as link:
        try:
            link.connect(path)
            socket.send_fds(link, [LENGTH.pack(len(request))], STANDARD_DESCRIPTORS)
            link.sendall(request)
            answer = link.recv(NUMBER.size, socket.MSG_WAITALL)
        except OSError:
            return None
        if len(answer) < NUMBER.size:
            return None
        (fork,) = NUMBER.unpack(answer)
        signal.signal(signal.SIGTERM, lambda number, _: os.kill(fork, number))
        _wait_for(link, java, fork)
        code = link.recv(NUMBER.size, socket.MSG_WAITALL)
    if len(code) == NUMBER.size:
        return int(NUMBER.unpack(code)[0])
    while _runs(fork):  # the parent has gone, which is nothing to the fork
        _end_without(java, fork)
        time.sleep(POLLING_SECONDS)
    return UNKNOWN_EXIT_CODE


def _wait_for(link: socket.socket, java: int, fork: int) -> None:
    """Wait until the fork, its parent or Java has ended."""
    while not select.select([link], [], [], JAVA_SECONDS)[0]:
        _end_without(java, fork)


def _end_without(java: int, fork: int) -> None:
    """Kill a fork if Java has ended."""
    if os.getppid() != java:
        with contextlib.suppress(ProcessLookupError):
            os.kill(fork, signal.SIGKILL)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def main(path: str, python: str, *arguments: str) -> int:
    """Run a module in a fork, or become Python."""
    if arguments == ("-c", VERSION_QUESTION):
        print(VERSION)  # noqa: T201 - Python would need a tenth of a second
        return 0
    is_module = arguments[:1] == ("-m",)
    code = exit_code_of_a_fork(path, [os.fsencode(each) for each in arguments[1:]]) if is_module else None
    if code is None:
        os.execv(python, [python, *arguments])  # noqa: S606 - no shell is wanted
    return code if code >= 0 else 128 - code  # as a shell says which signal ended a process


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
