import os
import signal
import sys

import pytest

from tests.simulation.forked import Apart, EndedError, apart


def test_a_result_comes_back():
    large = "x" * 1_000_000
    assert apart(lambda: (1, large)) == (1, large)


def test_a_failure_comes_with_its_traceback():
    def fail():
        assert 1 == 2, "so it is"  # noqa: PLR0133

    with pytest.raises(EndedError, match="so it is"):
        apart(fail)


def test_what_was_left_is_not_closed(tmp_path):
    def leave():
        try:
            yield
        finally:
            (tmp_path / "closed").touch()

    def work():
        left = leave()
        next(left)
        sys.modules["left"] = left
        return 1

    assert apart(work) == 1
    assert not list(tmp_path.iterdir())


def test_work_without_end_is_ended():
    def turn():
        while True:
            pass

    with pytest.raises(EndedError, match="more than 1 s of work"):
        apart(turn, longest_seconds=1)


def test_an_interrupt_while_a_process_begins_is_not_forgotten():
    def interrupt():
        os.kill(os.getpid(), signal.SIGINT)

    def work():
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.register_at_fork(after_in_parent=interrupt)
        try:
            begun = Apart(signal.pause)
        except KeyboardInterrupt:
            with pytest.raises(ChildProcessError):
                os.waitpid(-1, os.WNOHANG)
            return "interrupted, and nothing runs on"
        begun.end()
        return "forgotten"

    assert apart(work) == "interrupted, and nothing runs on"
