"""The forking parent: a process that has loaded everything, and forks to run a module of PySpark.

Python itself takes a second of a processor to import what a worker of Spark's needs, and 90 MB to keep it. A fork takes
some milliseconds, and shares the memory of what it does not change: hence the collector of garbage leaves alone what
has been loaded (`gc.freeze`).
"""

from __future__ import annotations

import contextlib
import gc
import io
import os
import runpy
import selectors
import shlex
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from cluster.spark.forking import stand_in
from cluster.spark.forking.stand_in import LENGTH, NUMBER, STANDARD_DESCRIPTORS, unpacked_request
from protocols.child_process import end_forks_with_this_process, forget_secrets
from protocols.event_log import get_logger

REQUEST_SECONDS = 10.0
"""How long a stand-in may take to send its request."""
LARGEST_REQUEST = 16 * 1024 * 1024
PROCESS_NAME = Path("/proc/self/comm")

TASKS = Path("/proc/self/task")

HARMLESS_THREADS = {
    "jemalloc_bg_thd": "jemalloc takes its locks around a fork",
    "polars-ooc-clea": "waits for files that Polars has spilled, from its import on",
}
"""Names of threads, as the kernel cuts them, and why a process that has them may be forked.

Any other one could hold a lock, which would stay taken for ever in the fork.
"""

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ForkingPlace:
    """Where a parent is, or will be.

    Parameters
    ----------
    folder
        Its own.
    """

    folder: Path

    @classmethod
    def make(cls, python: str = sys.executable) -> ForkingPlace | None:
        """Return a new place; None where processes are not forked, or no program can be put.

        Parameters
        ----------
        python
            What runs if the parent does not answer.
        """
        if sys.platform != "linux":
            return None
        place = None
        try:
            place = cls(Path(tempfile.mkdtemp(prefix="fjord-fork-")))
            words = [python, "-I", "-S", stand_in.__file__, str(place.socket), python]
            place.program.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
            place.program.chmod(0o700)
            if os.access(place.program, os.X_OK):
                return place
            reason = f"programs in {place.folder.parent} may not be executed"
        except OSError as error:
            reason = str(error)
        log.warning("Spark's Python processes are not forked", reason=reason)
        if place is not None:
            place.remove()
        return None

    @property
    def program(self) -> Path:
        """What Spark runs in place of Python."""
        return self.folder / "python"

    @property
    def socket(self) -> Path:
        """Where the parent listens."""
        return self.folder / "parent"

    def remove(self) -> None:
        """Remove the program; Spark can start no Python then."""
        shutil.rmtree(self.folder, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class ForkingParent:
    """A running parent. It ends when the process that started it does.

    Parameters
    ----------
    process
        Its number.
    lifeline
        A descriptor; the parent ends once it is closed, here and in all forks of this process.
    """

    process: int
    lifeline: int


def start_forking_parent(
    place: ForkingPlace, in_forks: Callable[[], None] = lambda: None, *, closing: Iterable[int] = ()
) -> ForkingParent | None:
    """Fork this process; the fork serves as a parent with all that is loaded here.

    Returns None, and explains in the log, if this process has threads with which that is not safe, or cannot fork.

    Parameters
    ----------
    place
        Where it listens. It is removed when the parent ends.
    in_forks
        Called in every fork of the parent, once it has its own environment.
    closing
        Descriptors that the parent should not keep open.
    """
    if unsafe := unsafe_threads():
        log.warning("Spark's Python processes are not forked", threads=unsafe)
        return None
    listening = socket.socket(socket.AF_UNIX)
    try:
        listening.bind(str(place.socket))
        listening.listen()
    except OSError as error:
        log.warning("Spark's Python processes are not forked", reason=str(error))
        listening.close()
        return None
    life, lifeline = os.pipe()
    gc.collect()
    gc.freeze()
    process = os.fork()
    if process == 0:
        _end_with(lambda: _serve_as_parent(place, listening, life, [lifeline, *closing], in_forks))
    listening.close()
    os.close(life)
    return ForkingParent(process, lifeline)


def unsafe_threads() -> list[str]:
    """Return the names of threads of this process with which it should not be forked; Python knows only its own."""
    others = (task for task in TASKS.iterdir() if int(task.name) != os.getpid())
    names = ((task / "comm").read_text().rstrip("\n") for task in others)
    return sorted(name for name in names if name not in HARMLESS_THREADS)


def _end_with(run: Callable[[], None]) -> NoReturn:
    """Run something and end this process, without the ending that belongs to the process that was forked."""
    code: object = 0
    try:
        run()
    except SystemExit as end:
        code = end.code
    except BaseException as error:  # noqa: BLE001 - shown, as Python would
        sys.excepthook(type(error), error, error.__traceback__)
        code = 1
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    if isinstance(code, str):
        sys.stderr.write(code + "\n")
    os._exit(code & 0xFF if isinstance(code, int) else int(code is not None))


def _serve_as_parent(
    place: ForkingPlace, listening: socket.socket, life: int, closing: Iterable[int], in_forks: Callable[[], None]
) -> None:
    for each in closing:
        os.close(each)
    forget_secrets()
    _name_process("fjord-parent")
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)  # it ends with the cluster, and with nothing else
    _Parent(listening, life, in_forks).serve()
    place.remove()  # not after an error: Spark runs on, with Python


class _Parent:
    """Waits for requests, and for the ends of forks and of stand-ins."""

    def __init__(self, listening: socket.socket, life: int, in_forks: Callable[[], None]) -> None:
        self._listening = listening
        self._life = life
        self._in_forks = in_forks
        self._waiting = selectors.DefaultSelector()
        self._forks: dict[int, socket.socket] = {}
        """The stand-ins of forks that run."""
        self._ended, self._note_end = os.pipe()

    def serve(self) -> None:
        """Serve until the process that started this one has ended; then no fork goes on, whatever it is doing."""
        for each in (self._ended, self._note_end):
            os.set_blocking(each, False)
        signal.set_wakeup_fd(self._note_end, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for source in (self._life, self._ended, self._listening):
            self._waiting.register(source, selectors.EVENT_READ)
        while True:
            ready = [key.fileobj for key, _ in self._waiting.select()]
            if self._life in ready:
                for fork in self._forks:
                    os.kill(fork, signal.SIGKILL)
                return
            if self._ended in ready:
                self._report_ends()
            for fork, link in list(self._forks.items()):
                if link in ready:  # a stand-in writes nothing more: it has been killed
                    os.kill(fork, signal.SIGKILL)
                    self._waiting.unregister(link)
            if self._listening in ready:
                link, _ = self._listening.accept()
                self._fork_for(link)

    def _fork_for(self, link: socket.socket) -> None:
        try:
            link.settimeout(REQUEST_SECONDS)
            request, descriptors = _received(link)
            link.settimeout(None)
        except (OSError, ValueError) as error:
            log.warning("request for a fork rejected", reason=str(error))
            link.close()
            return
        if (threads := len(list(TASKS.iterdir()))) != 1:
            raise AssertionError(f"the forking parent has {threads} threads")
        try:
            fork = os.fork()
        except OSError as error:  # too many processes, too little memory: the stand-in becomes Python
            log.warning("request for a fork not served", reason=str(error))
            _close(descriptors)
            link.close()
            return
        if fork == 0:
            self._leave(link)
            _end_with(lambda: _run(request, descriptors, self._in_forks))
        _close(descriptors)
        with contextlib.suppress(OSError):
            link.sendall(NUMBER.pack(fork))
        self._forks[fork] = link
        self._waiting.register(link, selectors.EVENT_READ)

    def _report_ends(self) -> None:
        """Let stand-ins end like their forks."""
        os.read(self._ended, 4096)
        while self._forks:
            fork, status = os.waitpid(-1, os.WNOHANG)
            if fork == 0:
                return
            with self._forks.pop(fork) as link:
                with contextlib.suppress(KeyError):
                    self._waiting.unregister(link)
                with contextlib.suppress(OSError):
                    link.sendall(NUMBER.pack(os.waitstatus_to_exitcode(status)))

    def _leave(self, link: socket.socket) -> None:
        """In a fork: close what belongs to the parent."""
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        self._waiting.close()
        for each in (self._life, self._ended, self._note_end):
            os.close(each)
        for open_socket in (self._listening, link, *self._forks.values()):
            open_socket.close()


def _received(link: socket.socket) -> tuple[bytes, list[int]]:
    """Return a request, and the standard descriptors of the process that sends it."""
    header, descriptors, _, _ = socket.recv_fds(link, LENGTH.size, len(STANDARD_DESCRIPTORS))
    try:
        return _rest_of_request(link, header, descriptors), descriptors
    except BaseException:
        _close(descriptors)
        raise


def _close(descriptors: Iterable[int]) -> None:
    for each in descriptors:
        os.close(each)


def _rest_of_request(link: socket.socket, header: bytes, descriptors: list[int]) -> bytes:
    if len(header) < LENGTH.size or len(descriptors) < len(STANDARD_DESCRIPTORS):
        raise ValueError("no request")
    (length,) = LENGTH.unpack(header)
    if length > LARGEST_REQUEST:
        raise ValueError(f"a request of {length} bytes")
    request = bytearray()
    while len(request) < length:
        piece = link.recv(length - len(request))
        if not piece:
            raise ValueError("half a request")
        request += piece
    return bytes(request)


def _run(request: bytes, descriptors: list[int], in_forks: Callable[[], None]) -> None:
    """Be the process that a stand-in was asked to be."""
    folder, (module, *arguments), environment = unpacked_request(request)
    for each, standard in zip(descriptors, STANDARD_DESCRIPTORS, strict=True):
        os.dup2(each, standard)
        os.close(each)
    os.chdir(folder)
    os.environb.clear()
    os.environb.update(environment)
    in_forks()
    end_forks_with_this_process()  # of Spark's daemon: the workers, which compute
    sys.argv = [os.fsdecode(each) for each in (module, *arguments)]
    _name_process(sys.argv[-1].rpartition(".")[2])
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(write_through=True)  # as Spark asks Python for, with a variable
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


def _name_process(name: str) -> None:
    """Set what `ps` and `top` show; the kernel keeps 15 characters."""
    with contextlib.suppress(OSError):
        PROCESS_NAME.write_text(name)
