"""Spark's session, begun in Java while this process still imports what it says to it.

    Java          [ starts ....... ] [ context ... session ... ]
    here          [ imports ................................. ] finds the session
    a fork        [ waits ........ ] asks for it, and ends

PySpark uses a context and a session that Java has already. If the fork cannot ask for them, PySpark does, later.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NoReturn

from cluster.spark.forking.parent import unsafe_threads
from cluster.spark.java_process import LONGEST_START_SECONDS, POLLING_SECONDS, listens_at

if TYPE_CHECKING:
    from cluster.spark.java_process import JavaProcess


def begin_session(java: JavaProcess, *, closing: Iterable[int] = ()) -> bool:
    """Have a fork of this process ask Java for a session; return False if this process cannot be forked.

    Parameters
    ----------
    java
        A Java that starts.
    closing
        Descriptors that the fork should not keep open.
    """
    if unsafe_threads():
        return False
    try:
        child = os.fork()
    except OSError:
        return False
    if child == 0:
        _fork_again(java, closing)
    os.waitpid(child, 0)
    return True


def _fork_again(java: JavaProcess, closing: Iterable[int]) -> NoReturn:
    """Fork once more, so that no process has to wait for the end of the one that asks."""
    try:
        if os.fork() == 0:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            logging.disable()  # py4j logs the traceback of a Java that is ended early
            for each in (java.descriptor, *closing):
                os.close(each)
            ask_for_session(java)
    finally:
        os._exit(0)  # whatever went wrong: PySpark asks again, and shows why there is no session


def ask_for_session(java: JavaProcess) -> None:
    """Wait until Java listens, and let it make a context and a session."""
    until = time.monotonic() + LONGEST_START_SECONDS
    while not java.where.exists():
        os.kill(java.process.pid, 0)  # an error if it has ended
        if time.monotonic() > until or not java.where.parent.exists():
            return
        time.sleep(POLLING_SECONDS)
    port, secret = listens_at(java.where)
    from py4j.java_gateway import GatewayParameters, JavaGateway  # noqa: PLC0415 - while Java starts

    gateway: Any = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=secret))
    session = gateway.jvm.org.apache.spark.sql.classic.SparkSession.builder().getOrCreate()
    session.sessionState()  # made when it is first needed
