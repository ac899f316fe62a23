"""`fjord security keys`: files for their owner only, which the parts accept."""

from __future__ import annotations

import os
import stat

import pytest
from typer.testing import CliRunner

from protocols.deployment.command import app
from protocols.errors import SettingsError
from protocols.sealing.seals import load_mote_keys, load_part_keys
from protocols.security.errors import SecurityError


def run(*arguments):
    done = CliRunner().invoke(app, ["keys", *map(str, arguments)])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


def contents(folder):
    return {each.name: each.read_text() for each in folder.iterdir()}


def test_files_are_made_for_their_owner_only_and_each_part_accepts_its_own(tmp_path):
    folder = tmp_path / "keys"
    done = run(folder, "--proxy", "roadside", "--proxy", "tunnel")
    assert done.exit_code == 0
    assert len(done.output.split("written: ")) == 6
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(each.stat().st_mode) for each in folder.iterdir()} == {0o600}
    cluster = load_part_keys(folder / "cluster.keys", proxy=None)
    proxy = load_part_keys(folder / "proxy-roadside.keys", proxy="roadside")
    assert proxy.motes == load_mote_keys(folder / "motes-roadside.keys")
    assert (proxy.cluster, proxy.proxies) == (cluster.cluster, cluster.proxies)
    assert not [text for text in contents(folder).values() if text.split('"')[1] in done.output]


def test_files_have_their_mode_whatever_new_files_get_here(tmp_path):
    before = os.umask(0o777)
    try:
        run(tmp_path, "--proxy", "a")
    finally:
        os.umask(before)
    assert {stat.S_IMODE(each.stat().st_mode) for each in tmp_path.iterdir()} == {0o600}


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SecurityError, match=r"cannot write .*motes-a\.keys: "):
        run(tmp_path / "file", "--proxy", "a")


def test_the_same_again_changes_nothing_and_a_new_proxy_changes_no_key(tmp_path):
    run(tmp_path, "--proxy", "a")
    before = contents(tmp_path)
    assert run(tmp_path, "--proxy", "a").output == ""
    assert contents(tmp_path) == before
    run(tmp_path, "--proxy", "b")
    assert load_part_keys(tmp_path / "proxy-a.keys", proxy="a").signing.hex() in before["proxy-a.keys"]
    assert load_part_keys(tmp_path / "cluster.keys", proxy=None).proxies.keys() == {"a", "b"}


def test_keys_are_renewed_and_revoked_one_by_one(tmp_path):
    run(tmp_path, "--proxy", "a", "--proxy", "b")
    before = contents(tmp_path)
    run(tmp_path, "--renew-mote", "a/m1")
    changed = {name for name, text in contents(tmp_path).items() if text != before[name]}
    assert changed == {"proxy-a.keys", "motes-a.keys"}
    run(tmp_path, "--renew", "a")
    assert contents(tmp_path)["motes-b.keys"] == before["motes-b.keys"]
    assert contents(tmp_path)["cluster.keys"] != before["cluster.keys"]
    assert "removed:" in run(tmp_path, "--revoke", "b").output
    assert set(contents(tmp_path)) == {"cluster.keys", "proxy-a.keys", "motes-a.keys"}
    cluster = load_part_keys(tmp_path / "cluster.keys", proxy=None)
    run(tmp_path, "--renew-cluster")
    after = load_part_keys(tmp_path / "cluster.keys", proxy=None)
    assert (after.cluster != cluster.cluster, after.proxies) == (True, cluster.proxies)


@pytest.mark.parametrize(
    "arguments", [["--renew", "c"], ["--revoke", "c"], ["--renew-mote", "c/m"], ["--renew-mote", "m"]]
)
def test_what_there_is_not_cannot_be_changed(tmp_path, arguments):
    run(tmp_path, "--proxy", "a")
    before = contents(tmp_path)
    with pytest.raises(SettingsError):
        run(tmp_path, *arguments)
    assert contents(tmp_path) == before


def test_keys_of_a_deployment_are_renewed_in_it_and_handed_out(tmp_path):
    folder = tmp_path / "d"
    made = ["init", str(folder), "--broker-host", "localhost", "--proxy", "a", "--mote", "a/m1"]
    assert CliRunner().invoke(app, made).exit_code == 0
    before = load_mote_keys(folder / "gateways" / "a-motes" / "motes-a.keys")
    output = run(folder, "--renew-mote", "a/m1").output
    assert [line.removeprefix(f"written: {folder}/") for line in output.splitlines()] == [
        "proxies/a/proxy-a.keys",
        "gateways/a-motes/motes-a.keys",
    ]
    after = load_mote_keys(folder / "gateways" / "a-motes" / "motes-a.keys")
    assert after.secret("m1") != before.secret("m1")
    assert after.secret("m2") == before.secret("m2")
    with pytest.raises(SettingsError, match="has keys for the proxies that it has"):
        run(folder, "--proxy", "b")


def test_the_keys_of_a_deployment_whose_authority_is_away_are_not_replaced(tmp_path):
    folder = tmp_path / "d"
    made = ["init", str(folder), "--broker-host", "localhost", "--proxy", "a"]
    assert CliRunner().invoke(app, made).exit_code == 0
    before = contents(folder / "cluster")["cluster.keys"]
    (folder / "authority").rename(tmp_path / "drawer")
    with pytest.raises(SecurityError, match="they are not there"):
        run(folder)
    assert contents(folder / "cluster")["cluster.keys"] == before


def test_copies_beside_keys_are_left_alone(tmp_path):
    run(tmp_path, "--proxy", "a")
    (tmp_path / "cluster-backup.keys").write_text("a copy")
    assert "backup" not in run(tmp_path, "--proxy", "b").output
    assert (tmp_path / "cluster-backup.keys").read_text() == "a copy"
