"""What short commands import: each library that they do without shortens the wait."""

import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

PROGRAM = """
import json, sys
from protocols.command_line.application import main
try:
    main()
finally:
    sys.stderr.write(json.dumps(sorted(sys.modules)))
"""
OURS = ("protocols", "firmware_sim", "proxy", "cluster")
OF_EVERY_COMMAND = {
    "protocols",
    "protocols.text",
    "protocols.command_line",
    "protocols.command_line.application",
    "protocols.errors",
    "protocols.event_log",
    "protocols.text.plain_text",
}
OF_SERVERS = {
    *("asyncio", "structlog", "msgspec", "prometheus_client", "uvicorn", "fastapi", "amqtt"),
    *("numpy", "polars", "pyarrow", "pandas", "sqlglot", "pyspark", "py4j", "deltalake", "psycopg"),
}
OF_CLIENTS = {"httpx", "httpcore", "ssl", "pydantic", "rich"}


class Api(BaseHTTPRequestHandler):
    """Takes every query."""

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        answer = json.dumps({"name": "q1", "topic": "fjord/v1/results/q1", "warnings": [], "epoch": 2}).encode()
        self.send_response(201)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *arguments):
        pass


@pytest.fixture
def api():
    with HTTPServer(("127.0.0.1", 0), Api) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        serving.join()


def imported_by(*arguments):
    """What `fjord` prints with these arguments, our modules that it imports, and all packages."""
    ended = subprocess.run([sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, check=True)
    modules = json.loads(ended.stderr)
    packages = {each.partition(".")[0] for each in modules}
    return ended.stdout, {each for each in modules if each.partition(".")[0] in OURS}, packages


def test_the_version_takes_the_command_line_only():
    output, ours, packages = imported_by("--version")
    assert output.startswith("fjord ")
    assert ours == OF_EVERY_COMMAND
    assert packages & (OF_SERVERS | OF_CLIENTS) == set()


def test_a_query_is_added_with_the_client_of_the_api_only(api):
    output, ours, packages = imported_by("query", "add", "SELECT speed FROM traffic", "--api", api)
    assert output == "q1  fjord/v1/results/q1\n"
    assert ours - OF_EVERY_COMMAND == {
        "cluster",
        "cluster.service.query_command",
        "cluster.errors",
        "cluster.service",
        "cluster.service.client.api_token",
        "cluster.service.client.api_client",
        "cluster.service.client",
        "cluster.service.client.command",
        "cluster.local",
        "cluster.local.command",
        "cluster.local.query_arguments",
        "protocols.command_line.options",
        "protocols.text.quantities",
        "protocols.wire",
        "protocols.wire.names",
    }
    assert packages & OF_SERVERS == set()
