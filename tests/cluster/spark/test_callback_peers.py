"""Which local users reach Spark's Java and the functions that it calls: those of this process's user only."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.spark import session
from cluster.spark.session import is_own, owner_of

NOBODY = 65_534
ADDRESSES = st.tuples(st.ip_addresses(v=4).map(str), st.integers(0, 65_535))


def written(address, port, mapped):
    octets = [int(each) for each in address.split(".")]
    number = "".join(f"{each:02X}" for each in (reversed(octets) if sys.byteorder == "little" else octets))
    return f"{'0000000000000000FFFF0000' if mapped else ''}{number}:{port:04X}"


@given(
    st.lists(
        st.tuples(ADDRESSES, ADDRESSES, st.integers(0, 2**31), st.booleans()),
        max_size=8,
        unique_by=lambda each: each[:2],
    ),
    st.data(),
)
def test_the_owner_of_an_end_is_that_of_its_line(connections, data):
    lines = [
        f" {number}: {written(*local, mapped)} {written(*remote, mapped)} 01 0:0 00:00000000 00000000 {owner} 0 99 1"
        for number, (local, remote, owner, mapped) in enumerate(connections)
    ]
    lines.insert(0, "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode")
    for local, remote, owner, _ in connections:
        assert owner_of(lines, local, remote) == owner
    other = data.draw(st.tuples(ADDRESSES, ADDRESSES))
    if other not in [each[:2] for each in connections]:
        assert owner_of(lines, *other) is None


def connected():
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        return client, server.accept()[0]


def test_a_connection_of_this_process_is_own(monkeypatch):
    client, served = connected()
    assert is_own(served)
    assert is_own(client)
    monkeypatch.setattr(session.os, "geteuid", lambda: os.getuid() + 1)
    assert not is_own(served)
    client.close()
    served.close()


def test_a_connection_that_is_not_listed_is_not_own(monkeypatch, tmp_path):
    client, served = connected()
    monkeypatch.setattr(session, "TABLES", (tmp_path / "tcp", Path("/proc/net/tcp6")))
    (tmp_path / "tcp").write_text("  sl  local_address\n")
    assert not is_own(served)
    client.close()
    served.close()


def test_a_connection_that_is_listed_later_is_own(monkeypatch):
    client, served = connected()
    readings, read_text = [], Path.read_text

    def read(path, *given):
        readings.append(path)
        return "  sl  local_address\n" if len(readings) < 6 else read_text(path, *given)

    monkeypatch.setattr(Path, "read_text", read)
    assert is_own(served)
    client.close()
    served.close()


def test_a_connection_that_the_other_end_has_closed_is_not_own_and_raises_nothing():
    client, served = connected()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    with pytest.raises(OSError, match="not connected"):
        served.getpeername()
    assert not is_own(served)
    served.close()


CALLS = """
import encodings.idna, os, socket, sys
port, user, name = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
if user >= 0:
    os.setgroups([]); os.setgid(user); os.setuid(user)
connection = socket.create_connection(("127.0.0.1", port))
connection.settimeout(20)
try:
    connection.sendall(f"c\\n{name}\\ncall\\ne\\n".encode())
    print(connection.recv(1000).decode())
except ConnectionError:
    print("")
"""


def called(port, name, user=-1):
    command = [sys.executable, "-c", CALLS, str(port), str(user), name]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.strip()


@pytest.mark.spark
def test_only_processes_of_this_user_call_functions_of_a_sink(spark, monkeypatch):
    batches, begun = [], threading.Event()

    def note(_, number):
        batches.append(number)
        begun.set()

    query = spark.readStream.format("rate").load().writeStream.foreachBatch(note).start()
    assert begun.wait(60), query.exception()
    server = spark.sparkContext._gateway._callback_server
    port = server.server_socket.getsockname()[1]
    names = list(server.pool.dict)
    assert names
    assert any("missing" in called(port, each) for each in names)  # it was called, without its arguments
    if os.getuid() == 0:
        assert {called(port, each, NOBODY) for each in names} == {""}
    monkeypatch.setattr(session.os, "geteuid", lambda: os.getuid() + 1)
    assert {called(port, each) for each in names} == {""}
    monkeypatch.undo()
    seen = len(batches)
    query.processAllAvailable()
    assert query.exception() is None
    assert len(batches) >= seen
    query.stop()


@pytest.mark.spark
def test_java_answers_no_process_without_its_secret(spark):
    """A question as py4j writes it, for a class: the secret comes first."""
    parameters = spark.sparkContext._gateway.gateway_parameters

    def asked(*lines):
        with socket.create_connection(("127.0.0.1", parameters.port)) as connection:
            connection.settimeout(60)
            connection.sendall("".join(f"{each}\n" for each in lines).encode())
            answers, found = connection.makefile("rb"), []
            with contextlib.suppress(ConnectionError):
                found += [answers.readline()[:2]]
                found += [answers.readline()[:2]]
            return found

    question = ("r", "u", "java.lang.System", "rj", "e")
    assert asked("A", parameters.auth_token, *question) == [b"!y", b"!y"]
    for stranger in ((), ("A", "guessed"), ("A", "")):
        assert b"!y" not in asked(*stranger, *question)


PROBE = """
package probe;

import org.apache.spark.SecurityManager;
import org.apache.spark.SparkConf;
import org.apache.spark.rpc.RpcAddress;
import org.apache.spark.rpc.RpcEnv;

public class Probe {
    public static String ask(SparkConf conf, int port) {
        conf.set("spark.rpc.numRetries", "1").set("spark.rpc.askTimeout", "10s").set("spark.rpc.lookupTimeout", "10s");
        SecurityManager secrets = new SecurityManager(
            conf, scala.Option.empty(), SecurityManager.$lessinit$greater$default$3());
        RpcEnv env = RpcEnv.create("probe", "127.0.0.1", 0, conf, secrets, true);
        try {
            RpcAddress address = new RpcAddress("127.0.0.1", port);
            return "found " + env.setupEndpointRef(address, "LocalSchedulerBackendEndpoint").name();
        } catch (Throwable error) {
            return "refused";
        } finally {
            env.shutdown();
        }
    }
}
"""


@pytest.mark.spark
def test_spark_answers_no_process_without_its_secret(spark):
    """The first message of a program that would stop the executor, as Spark's own library sends it."""
    java, settings = spark._jvm, spark.sparkContext.getConf()
    compiler = java.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(spark.sparkContext._jsc.hadoopConfiguration().getClassLoader())
    compiler.cook(PROBE)
    (ask,) = (
        each for each in compiler.getClassLoader().loadClass("probe.Probe").getMethods() if each.getName() == "ask"
    )
    arguments = spark.sparkContext._gateway.new_array(java.Object, 2)
    arguments[0], arguments[1] = java.org.apache.spark.SparkConf(False), int(settings.get("spark.driver.port"))
    assert ask.invoke(None, arguments) == "refused"
