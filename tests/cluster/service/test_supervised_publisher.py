"""A publisher's process that is not what it should be: it is ended, shown, and started again."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from cluster.errors import StorageError
from cluster.service.publishing import supervised_publishers
from cluster.service.publishing.publication import FILE, Publication
from cluster.service.publishing.published import Share
from cluster.service.publishing.publisher_channel import Orders, Report, from_line, to_line
from cluster.service.publishing.supervised_publishers import MODULE, TROUBLE, ProgressOfAll, SupervisedPublishers
from cluster.storage.synced_files import Troubles
from protocols.child_process import SECRET_VARIABLES
from protocols.mqtt.link import BrokerAddress
from protocols.security.tls import TlsFiles


@pytest.mark.parametrize("written", ["hello", "x" * 200_000, '{"version":-7}'])
async def test_a_process_that_reports_nonsense_and_lives_on_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str
) -> None:
    package = tmp_path / "nonsense.py"
    package.write_text(f"import sys, time\nprint({written!r}, flush=True)\ntime.sleep(600)\n", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(supervised_publishers, "MODULE", "nonsense")
    monkeypatch.setattr(supervised_publishers, "FIRST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(supervised_publishers, "FAREWELL_SECONDS", 0.01)
    troubles = Troubles()
    orders = Orders(str(tmp_path), BrokerAddress(), "publisher", 15.0, "error")
    publisher = SupervisedPublishers(orders, ProgressOfAll(tmp_path), newest=lambda: 0, troubles=troubles)
    running = asyncio.create_task(publisher.run())
    async with asyncio.timeout(30):
        while publisher.starts < 2:  # noqa: ASYNC110 - another process makes it true
            await asyncio.sleep(0.01)
    assert troubles.counts[TROUBLE] >= 1
    running.cancel()
    await asyncio.wait({running})


async def test_a_publisher_gets_secrets_by_its_orders_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = tmp_path / "shown"
    (tmp_path / "showing.py").write_text(
        f"import os, pathlib\npathlib.Path({str(shown)!r}).write_text(' '.join(os.environ))\n", encoding="utf-8"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    for name in SECRET_VARIABLES:
        monkeypatch.setenv(name, "hidden")
    monkeypatch.setattr(supervised_publishers, "MODULE", "showing")
    monkeypatch.setattr(supervised_publishers, "FIRST_PAUSE_SECONDS", 0.01)
    orders = Orders(str(tmp_path), BrokerAddress(), "publisher", 15.0, "error")
    publisher = SupervisedPublishers(orders, ProgressOfAll(tmp_path), newest=lambda: 0, troubles=Troubles())
    running = asyncio.create_task(publisher.run())
    async with asyncio.timeout(30):
        while publisher.starts < 2:  # noqa: ASYNC110 - another process makes it true
            await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.wait({running})
    assert "PYTHONPATH" in (variables := shown.read_text(encoding="utf-8").split())
    assert not SECRET_VARIABLES & set(variables)


def test_a_publisher_of_another_division_is_refused_and_its_log_names_it(tmp_path: Path) -> None:
    orders = Orders(str(tmp_path), BrokerAddress(), "publisher", 15.0, "error", log_json=True, share=Share(1, 2))
    run = subprocess.run(
        [sys.executable, "-m", MODULE], input=to_line(orders), capture_output=True, check=False, timeout=60
    )
    assert run.returncode == 1
    assert "published by 1 publishers" in from_line(run.stdout, Report).failure
    assert json.loads(run.stderr)["publisher"] == 1


async def test_a_publisher_runs_where_a_folder_has_the_name_of_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cluster" / "service").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    troubles = Troubles()
    orders = Orders(str(tmp_path), BrokerAddress(port=1), "publisher", 15.0, "error")
    publisher = SupervisedPublishers(orders, ProgressOfAll(tmp_path), newest=lambda: 0, troubles=troubles)
    running = asyncio.create_task(publisher.run())
    async with asyncio.timeout(30):
        while not (publisher.each[0].progress.last.trouble or troubles.last):  # noqa: ASYNC110 - another process makes it true
            await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.wait({running})
    assert troubles.last == "", "it has ended"
    assert "127.0.0.1:1" in str(publisher.each[0].progress.last.trouble), "it tries to reach its broker"


def test_a_position_before_the_first_commit_is_refused(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('{"version":-7}')
    with pytest.raises(StorageError, match="cannot be read"):
        Publication(tmp_path)


def test_a_publisher_gets_the_files_for_tls_of_its_cluster():
    broker = BrokerAddress("gateway", 8883, tls=TlsFiles("ca.crt", "cluster.crt", "cluster.key"))
    orders = Orders("data", broker, "publisher", 15.0, "error")
    assert from_line(to_line(orders), Orders) == orders
