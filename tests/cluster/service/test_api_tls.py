"""The HTTP API with TLS: which clients get an answer, and what the others read."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from cluster.demo.parts import accepts, free_port
from cluster.errors import ClusterError
from cluster.service.client.api_client import ApiClient, ApiUnreachableError
from cluster.service.client.command import make_client
from cluster.service.cluster_command import cluster
from cluster.service.query_command import query
from cluster.service.running.settings import ClusterSettings
from cluster.service.server import ClusterServer
from protocols.mqtt.link import BrokerAddress
from protocols.security.certificates import Pair, Purpose, issue, make_authority
from protocols.security.errors import CertificateFileError, ExpiredCertificateError, SecurityError
from protocols.security.private_files import PUBLIC, SECRET, write_file
from protocols.security.tls import TlsFiles, client_context

NOW = time.time()
DAY = 86_400.0
SECONDS = 30


class Files:
    """An authority, and files that come from it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = make_authority("Test", now=NOW, days=30)
        self.ca = self.write("ca", self.authority).certificate or ""

    def write(self, name: str, pair: Pair) -> TlsFiles:
        certificate, key = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        write_file(certificate, pair.certificate, mode=PUBLIC)
        write_file(key, pair.key, mode=SECRET)
        return TlsFiles(None, str(certificate), str(key))

    def server(self, *hosts: str, name: str = "api") -> TlsFiles:
        return self.write(name, issue(self.authority, name, Purpose.SERVER, hosts=hosts, now=NOW, days=20))

    def client(self, name: str, now: float = NOW) -> TlsFiles:
        own = self.write(name, issue(self.authority, name, Purpose.CLIENT, now=now, days=5))
        return replace(own, authority=self.ca)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path / "files")


def served(settings: ClusterSettings, ask: Callable[[], object]) -> object:
    """What a client gets from the API of a cluster that does nothing else."""

    listening = BrokerAddress("127.0.0.1", settings.api_port)

    async def run() -> object:
        server = ClusterServer(settings)
        with closing(server):
            async with asyncio.TaskGroup() as tasks, server._serving(tasks):
                async with asyncio.timeout(SECONDS):
                    while not await asyncio.to_thread(accepts, listening):  # noqa: ASYNC110 - another program
                        await asyncio.sleep(0.01)
                return await asyncio.to_thread(ask)

    return asyncio.run(run())


@pytest.fixture
def settings(files: Files, tmp_path: Path) -> ClusterSettings:
    tls = files.server("127.0.0.1", "localhost")
    return ClusterSettings(folder=tmp_path / "data", api_port=free_port(), api_tls=tls)


def test_a_client_with_the_authority_gets_an_answer(settings: ClusterSettings, files: Files) -> None:
    assert settings.api_address == f"https://127.0.0.1:{settings.api_port}"

    def ask() -> object:
        with ApiClient(settings.api_address, tls=TlsFiles(files.ca)) as client:
            return client.status()["name"]

    assert served(settings, ask) == "cluster"


def test_a_client_without_the_authority_reads_why_it_gets_none(settings: ClusterSettings, files: Files) -> None:
    def ask() -> object:
        with ApiClient(settings.api_address) as client, pytest.raises(ApiUnreachableError) as caught:
            client.status()
        return caught.value

    error = served(settings, ask)
    assert isinstance(error, ApiUnreachableError)
    assert "its certificate is not accepted" in error.message
    assert "FJORD_API_CA" in str(error.hint)


def test_a_client_that_calls_another_name_gets_none(settings: ClusterSettings, files: Files) -> None:
    wrong = replace(settings, api_tls=files.server("gateway.local", name="wrong"))

    def ask() -> object:
        with (
            ApiClient(wrong.api_address, tls=TlsFiles(files.ca)) as client,
            pytest.raises(ApiUnreachableError) as caught,
        ):
            client.status()
        return caught.value.message

    assert "mismatch" in str(served(wrong, ask))


def test_without_tls_nothing_is_answered(settings: ClusterSettings) -> None:
    def ask() -> object:
        with pytest.raises(httpx.HTTPError):
            httpx.get(f"http://127.0.0.1:{settings.api_port}/v1/status", trust_env=False)
        return None

    served(settings, ask)


@pytest.mark.parametrize("name", ["none", "foreign", "expired", "server", "wall"])
def test_with_an_authority_of_clients_only_their_certificates_count(
    settings: ClusterSettings, files: Files, tmp_path: Path, name: str
) -> None:
    tls = settings.api_tls
    assert tls is not None
    strict = replace(settings, api_tls=replace(tls, authority=files.ca))
    shown = {
        "none": TlsFiles(files.ca),
        "foreign": replace(Files(tmp_path / "other").client("wall"), authority=files.ca),
        "expired": files.client("old", now=NOW - 10 * DAY),
        "server": replace(tls, authority=files.ca),
        "wall": files.client("wall"),
    }[name]

    def ask() -> object:
        with ApiClient(strict.api_address, tls=shown) as client:
            return client.status()["name"]

    if name == "wall":
        assert served(strict, ask) == "cluster"
    else:
        with pytest.raises(ExceptionGroup) as caught:
            served(strict, ask)
        assert caught.group_contains(ApiUnreachableError)


def test_versions_of_tls_before_1_2_are_refused(settings: ClusterSettings, files: Files) -> None:
    import ssl

    def ask() -> object:
        context = client_context(TlsFiles(files.ca))
        context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            context.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises(httpx.HTTPError):
            httpx.get(f"{settings.api_address}/v1/status", verify=context, trust_env=False)
        return None

    served(settings, ask)


def test_the_token_is_asked_for_as_without_tls(settings: ClusterSettings, files: Files) -> None:
    with pytest.raises(ClusterError, match="without a token"):
        ClusterServer(replace(settings, api_host="0.0.0.0"))

    def ask() -> object:
        answer = httpx.get(
            f"{settings.api_address}/v1/status", verify=client_context(TlsFiles(files.ca)), trust_env=False
        )
        return answer.status_code

    assert served(replace(settings, api_token="secret"), ask) == 401


@pytest.mark.parametrize(("scheme", "status"), [("https", 200), ("http", 403)])
def test_a_page_of_the_api_is_one_with_tls(settings: ClusterSettings, files: Files, scheme: str, status: int) -> None:
    def ask() -> object:
        return httpx.get(
            f"{settings.api_address}/v1/status",
            headers={"Origin": f"{scheme}://127.0.0.1:{settings.api_port}"},
            verify=client_context(TlsFiles(files.ca)),
            trust_env=False,
        ).status_code

    assert served(settings, ask) == status


def test_the_gauge_has_the_certificates_of_the_api_and_of_the_link(settings: ClusterSettings, files: Files) -> None:
    both = replace(settings, broker=replace(settings.broker, tls=files.client("cluster")))

    def ask() -> object:
        verify = client_context(TlsFiles(files.ca))
        return httpx.get(f"{both.api_address}/metrics", verify=verify, trust_env=False).text

    (found,) = (
        {sample.labels["use"]: sample.value for sample in family.samples}
        for family in text_string_to_metric_families(str(served(both, ask)))
        if family.name == "fjord_certificate_expiry_timestamp_seconds"
    )
    assert {use: round((value - NOW) / DAY) for use, value in found.items()} == {
        "api": 20,
        "broker": 5,
        "broker authority": 30,
    }


def test_commands_take_files_from_the_environment(
    settings: ClusterSettings, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = files.client("wall")
    for name, value in zip(
        ("FJORD_API_CA", "FJORD_API_CLIENT_CERTIFICATE", "FJORD_API_CLIENT_KEY"),
        (own.authority, own.certificate, own.key),
        strict=True,
    ):
        monkeypatch.setenv(name, str(value))
    tls = settings.api_tls
    assert tls is not None

    def ask() -> object:
        result = CliRunner().invoke(query, ["list", "--api", settings.api_address, "--json"])
        assert result.exception is None, result.exception
        return json.loads(result.output)

    assert served(replace(settings, api_tls=replace(tls, authority=files.ca)), ask) == []
    monkeypatch.setenv("FJORD_API_CLIENT_KEY", "")
    with pytest.raises(SecurityError, match="FJORD_API_CLIENT_CERTIFICATE is set without FJORD_API_CLIENT_KEY"):
        make_client(settings.api_address)
    make_client("http://127.0.0.1:8642")  # needs no files
    monkeypatch.setenv("FJORD_API_CLIENT_CERTIFICATE", "")
    monkeypatch.setenv("FJORD_API_CA", str(files.folder / "none.crt"))
    with pytest.raises(CertificateFileError, match="there is no file"):
        make_client(settings.api_address)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (["--api-certificate", "{api}.crt"], SecurityError, "--api-certificate is set without --api-key"),
        (["--api-certificate", "{api}.crt", "--api-key", "{old}.key"], CertificateFileError, "is not that of"),
        (["--api-certificate", "{old}.crt", "--api-key", "{old}.key"], ExpiredCertificateError, "expired on"),
        (["--api-certificate", "{none}.crt", "--api-key", "{api}.key"], CertificateFileError, "there is no file"),
    ],
)
def test_a_cluster_with_unusable_files_does_not_start(
    files: Files, tmp_path: Path, arguments: list[str], error: type[Exception], words: str
) -> None:
    files.server("localhost")
    files.client("old", now=NOW - 10 * DAY)
    names = {name: str(files.folder / name) for name in ("api", "old", "none")}
    result = CliRunner().invoke(
        cluster, ["--data", str(tmp_path / "data"), *(each.format(**names) for each in arguments)]
    )
    assert isinstance(result.exception, error)
    assert words in str(result.exception)
    assert not (tmp_path / "data").exists()


def test_an_authority_of_clients_needs_a_certificate_of_the_api(files: Files) -> None:
    result = CliRunner().invoke(cluster, ["--api-client-ca", files.ca])
    assert result.exit_code == 2
