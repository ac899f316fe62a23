"""The folder of a deployment: made whole, made again never, added to, renewed, revoked; keys for their owner only."""

from __future__ import annotations

import shutil
import stat
import time
from dataclasses import replace

import msgspec
import pytest
from structlog.testing import capture_logs

from protocols.deployment.broker_configuration import BrokerPart, configuration_text
from protocols.deployment.folder import DeploymentFolder
from protocols.deployment.identities import environments, expiry_report, identities
from protocols.deployment.names import GatewayPart, Names, ProxyPart, SubscriberPart
from protocols.sealing.seals import load_mote_keys, load_part_keys
from protocols.security.errors import ExpiredCertificateError, SecurityError
from protocols.security.tls import check_files
from tests.secured_broker import deployed, files_of

NOW = time.time()
DAY = 86_400.0
NAMES = Names(
    proxies=(ProxyPart("roadside"),),
    gateways=(GatewayPart("roadside-motes", "roadside", ("m1",)),),
    subscribers=(SubscriberPart("wall"),),
)


@pytest.fixture
def opened(tmp_path):
    return deployed(tmp_path / "d", NAMES, now=NOW)


def contents(folder):
    return {str(each.relative_to(folder)): each.read_bytes() for each in folder.rglob("*") if each.is_file()}


def test_all_files_are_there_and_fit(opened):
    for each in identities(opened.deployment):
        check_files(files_of(opened, each.name), NOW)
    assert {name for name in contents(opened.path) if not name.endswith((".crt", ".key", ".keys", "/environment"))} == {
        "deployment.json",
        "broker/acl",
        "broker/mosquitto.conf",
        "broker/revoked.crl",
    }


def test_authoritys_key_that_others_may_read_is_warned_of(opened):
    key = opened.path / "authority" / "ca.key"
    names = opened.deployment.names.with_part(ProxyPart("bridge"))
    key.chmod(0o644)
    with capture_logs() as events:
        opened.change(names, NOW)
    assert {each["hint"] for each in events} == {f"chmod 600 {key}"}
    key.chmod(0o600)
    with capture_logs() as events:
        opened.change(names.with_part(ProxyPart("tunnel")), NOW)
    assert events == []


def test_keys_are_for_their_owner_only_and_the_authoritys_is_in_one_place(opened):
    keys = list(opened.path.rglob("*.key"))
    assert len(keys) == 7
    assert {stat.S_IMODE(each.stat().st_mode) for each in keys} == {0o600}
    assert {stat.S_IMODE(each.parent.stat().st_mode) for each in keys} == {0o700}
    authority = (opened.path / "authority" / "ca.key").read_bytes()
    assert [each.parent.name for each in keys if each.read_bytes() == authority] == ["authority"]
    assert len({each.read_bytes() for each in keys}) == len(keys)
    assert b"PRIVATE" not in (opened.path / "deployment.json").read_bytes()


def test_each_machine_has_the_keys_that_seal_its_frames_and_no_others(opened):
    found = {name: text for name, text in contents(opened.path).items() if name.endswith(".keys")}
    assert {name for name in found if not name.startswith("authority/")} == {
        "cluster/cluster.keys",
        "gateways/roadside-motes/motes-roadside.keys",
        "proxies/roadside/proxy-roadside.keys",
    }
    for name, content in found.items():
        assert content == found[f"authority/{name.rpartition('/')[2]}"]
        assert stat.S_IMODE((opened.path / name).stat().st_mode) == 0o600
    cluster = load_part_keys(opened.path / "cluster" / "cluster.keys", proxy=None)
    proxy = load_part_keys(opened.path / "proxies" / "roadside" / "proxy-roadside.keys", proxy="roadside")
    assert (proxy.cluster, proxy.proxies) == (cluster.cluster, cluster.proxies)
    assert proxy.motes == load_mote_keys(opened.path / "gateways" / "roadside-motes" / "motes-roadside.keys")
    variables = environments(opened.deployment, str(opened.path))
    named = [value for each in variables.values() for name, value in each.items() if name.endswith("_KEYS")]
    assert len(named) == 3
    assert all((opened.path / each).is_file() for each in named)


def test_keys_of_a_proxy_come_and_go_with_it(opened):
    first = load_part_keys(opened.path / "cluster" / "cluster.keys", proxy=None)
    opened.change(opened.deployment.names.with_part(ProxyPart("harbour")), NOW)
    assert set(opened.changed_keys) == {
        "cluster/cluster.keys",
        "proxies/harbour/proxy-harbour.keys",
        "proxies/roadside/proxy-roadside.keys",
    }
    second = load_part_keys(opened.path / "cluster" / "cluster.keys", proxy=None)
    assert second.proxies.items() > first.proxies.items()
    opened.revoke("harbour", NOW)
    assert load_part_keys(opened.path / "cluster" / "cluster.keys", proxy=None).proxies == first.proxies
    assert "proxies/harbour/proxy-harbour.keys" in opened.changed_keys
    assert not list(opened.path.rglob("*-harbour.keys"))


def test_copies_of_keys_are_left_alone(opened):
    copies = [opened.path / "authority-old", opened.path / "cluster.old"]
    shutil.copytree(opened.path / "authority", copies[0])
    shutil.copytree(opened.path / "cluster", copies[1])
    kept = opened.path / "authority" / "cluster-2025.keys"
    kept.write_text("a copy")
    opened.change(opened.deployment.names.with_part(ProxyPart("harbour")), NOW)
    opened.revoke("harbour", NOW)
    assert kept.read_text() == "a copy"
    assert {each.name for each in copies[0].glob("*.keys")} == {
        "cluster.keys",
        "motes-roadside.keys",
        "proxy-roadside.keys",
    }
    assert (copies[1] / "cluster.keys").is_file()


def test_keys_are_not_made_anew_while_the_authority_is_away(opened):
    before = (opened.path / "cluster" / "cluster.keys").read_bytes()
    (opened.path / "authority").rename(opened.path.parent / "drawer")
    with pytest.raises(SecurityError, match="they are not there"):
        opened.hand_out_keys()
    assert (opened.path / "cluster" / "cluster.keys").read_bytes() == before


def test_an_interrupted_command_that_wrote_some_keys_is_completed(opened):
    for file in (opened.path / "authority" / "cluster.keys", opened.path / "cluster" / "cluster.keys"):
        file.unlink()
    opened.complete(NOW)
    cluster = load_part_keys(opened.path / "cluster" / "cluster.keys", proxy=None)
    assert (
        load_part_keys(opened.path / "proxies/roadside/proxy-roadside.keys", proxy="roadside").cluster
        == cluster.cluster
    )


def test_an_interrupted_revocation_is_done_by_the_same_command_again(opened, monkeypatch):
    def end(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(DeploymentFolder, "_write_derived", end)
        with pytest.raises(KeyboardInterrupt):
            opened.revoke("wall", NOW)
    again = DeploymentFolder.open(opened.path)
    assert again.revoke("wall", NOW) == 1
    assert "user wall" not in (opened.path / "broker" / "acl").read_text()


def test_the_same_again_changes_nothing(opened):
    before = contents(opened.path)
    wanted = msgspec.structs.replace(opened.deployment, issued=())
    DeploymentFolder.create(opened.path, wanted, NOW + DAY)
    after = contents(opened.path)
    assert {name for name in before if before[name] != after[name]} <= {"broker/revoked.crl"}
    assert set(before) == set(after)


def test_another_deployment_is_not_overwritten(opened, tmp_path):
    before = contents(opened.path)
    other = msgspec.structs.replace(opened.deployment, issued=(), names=Names(proxies=(ProxyPart("harbour"),)))
    with pytest.raises(SecurityError, match="has another deployment, which is not overwritten"):
        DeploymentFolder.create(opened.path, other, NOW)
    assert contents(opened.path) == before
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter").write_text("dear")
    with pytest.raises(SecurityError, match="is not empty"):
        DeploymentFolder.create(tmp_path / "full", other, NOW)
    assert contents(tmp_path / "full") == {"letter": b"dear"}


def test_files_that_were_moved_to_their_machine_are_not_made_again(opened):
    certificate, key = (opened.path / "proxies" / "roadside" / f"roadside.{each}" for each in ("crt", "key"))
    certificate.unlink()
    key.unlink()
    opened.change(opened.deployment.names.with_part(SubscriberPart("archive")), NOW)
    assert not certificate.exists()
    assert not key.exists()
    assert (opened.path / "subscribers" / "archive" / "archive.key").exists()


def test_an_interrupted_command_is_completed(tmp_path, monkeypatch):
    """Whatever file was the last that was written."""
    from protocols.deployment import folder as module

    written = 0
    real = module.write_file

    class Cut(Exception):  # noqa: N818 - the power, not an error
        pass

    whole = None
    for cut in range(1, 60):
        written = 0

        def write(*arguments, cut=cut, **options):
            nonlocal written
            written += 1
            if written == cut:
                raise Cut
            real(*arguments, **options)

        monkeypatch.setattr(module, "write_file", write)
        try:
            whole = deployed(tmp_path / f"d{cut}", NAMES, now=NOW)
        except Cut:
            monkeypatch.setattr(module, "write_file", real)
            path = tmp_path / f"d{cut}"
            if (path / "deployment.json").exists():
                opened = DeploymentFolder.open(path)
                opened.complete(NOW)
                for each in identities(opened.deployment):
                    check_files(files_of(opened, each.name), NOW)
                assert (path / "broker" / "mosquitto.conf").exists()
        else:
            break
    assert whole is not None
    assert cut > 20


def test_a_part_is_added_with_a_certificate_and_rules(opened):
    new = opened.change(opened.deployment.names.with_motes([("mast", "roadside", "m2")]), NOW)
    assert new == ["mast"]
    check_files(files_of(opened, "mast"), NOW)
    acl = (opened.path / "broker" / "acl").read_text()
    assert "user mast\ntopic write fjord/v1/motes/roadside/m2/packet\n" in acl
    before = contents(opened.path)
    again = DeploymentFolder.open(opened.path)
    assert again.change(again.deployment.names.with_motes([("mast", "roadside", "m2")]), NOW) == []
    assert {name for name, content in contents(opened.path).items() if before[name] != content} <= {
        "broker/revoked.crl"
    }


def test_what_expires_soon_is_renewed_and_nothing_else(opened):
    before = contents(opened.path)
    assert opened.renew([], NOW + 300 * DAY) == []
    assert {name for name, each in contents(opened.path).items() if before[name] != each} <= {"broker/revoked.crl"}
    renewed = opened.renew([], NOW + 340 * DAY)
    assert renewed == ["broker", "cluster", "api", "roadside", "roadside-motes", "wall"]
    for name in renewed:
        check_files(files_of(opened, name), NOW + 700 * DAY)
        assert (
            before[f"{files_of(opened, name).key.removeprefix(str(opened.path) + '/')}"]
            != (contents(opened.path)[files_of(opened, name).key.removeprefix(str(opened.path) + "/")])
        )


def test_one_is_renewed_with_another_time(opened):
    opened.renew(["wall"], NOW, 5)
    check_files(files_of(opened, "wall"), NOW + 4 * DAY)
    with pytest.raises(ExpiredCertificateError):
        check_files(files_of(opened, "wall"), NOW + 6 * DAY)
    check_files(files_of(opened, "roadside"), NOW + 6 * DAY)


def test_a_renewed_authority_keeps_its_key_and_reaches_all_folders(opened):
    key = (opened.path / "authority" / "ca.key").read_bytes()
    old = files_of(opened, "wall")
    opened.renew(["authority"], NOW + 3_600 * DAY)
    assert (opened.path / "authority" / "ca.key").read_bytes() == key
    new = (opened.path / "authority" / "ca.crt").read_bytes()
    assert all(each.read_bytes() == new for each in opened.path.rglob("ca.crt"))
    check_files(replace(old, certificate=None, key=None), NOW + 4_000 * DAY)


def test_an_expired_authority_signs_nothing(opened):
    with pytest.raises(ExpiredCertificateError, match=r"the authority expired on .*renew it first"):
        opened.renew(["wall"], NOW + 3_700 * DAY)
    assert opened.renew(["authority", "wall"], NOW + 3_700 * DAY) == ["authority", "wall"]
    check_files(files_of(opened, "wall"), NOW + 3_701 * DAY)


@pytest.mark.parametrize("name", ["unknown", "", "+", "../broker"])
def test_what_there_is_not_is_neither_renewed_nor_revoked(opened, name):
    with pytest.raises(SecurityError, match="has no certificate"):
        opened.renew([name], NOW)
    with pytest.raises(SecurityError, match="cannot be revoked"):
        opened.revoke(name, NOW)


@pytest.mark.parametrize("name", ["broker", "api", "authority", "cluster"])
def test_what_a_deployment_cannot_do_without_is_not_revoked(opened, name):
    with pytest.raises(SecurityError, match="cannot be revoked"):
        opened.revoke(name, NOW)


def test_all_certificates_of_a_name_are_revoked_and_its_rules_go(opened):
    from cryptography import x509

    opened.renew(["wall"], NOW)
    serials = {int(each.serial, 16) for each in opened.deployment.issued if each.name == "wall"}
    assert len(serials) == 2
    assert opened.revoke("wall", NOW) == 2
    listed = x509.load_pem_x509_crl((opened.path / "broker" / "revoked.crl").read_bytes())
    assert {each.serial_number for each in listed} == serials
    assert "user wall" not in (opened.path / "broker" / "acl").read_text()
    assert not (opened.path / "subscribers" / "wall" / "wall.key").exists()
    again = DeploymentFolder.open(opened.path)
    assert again.change(again.deployment.names.with_part(SubscriberPart("wall")), NOW) == ["wall"]
    check_files(files_of(again, "wall"), NOW)
    assert again.deployment.newest("wall").serial not in {f"{each:x}" for each in serials}


def test_old_certificates_are_revoked_when_their_keys_have_leaked(opened):
    from cryptography import x509

    old = opened.deployment.newest("cluster")
    opened.revoke_old(opened.renew(["cluster"], NOW), NOW)
    listed = x509.load_pem_x509_crl((opened.path / "broker" / "revoked.crl").read_bytes())
    assert [each.serial_number for each in listed] == [int(old.serial, 16)]
    assert "user cluster" in (opened.path / "broker" / "acl").read_text()


def test_the_report_has_days_and_no_keys(opened):
    opened.revoke("wall", NOW)
    report = expiry_report(opened.deployment, NOW + 10.5 * DAY)
    rows = {each["name"]: (each["role"], each["days_left"], each["left"]) for each in report}
    assert rows["authority"] == ("authority", 3_639, "3639")
    assert rows["roadside"] == ("proxy", 354, "354")
    assert rows["wall"] == ("", 354, "revoked")
    assert {each["left"] for each in expiry_report(opened.deployment, NOW + 400 * DAY) if each["name"] == "api"} == {
        "expired"
    }
    assert not any("PRIVATE" in str(each) for each in report)


@pytest.mark.parametrize(
    "broker",
    [
        BrokerPart((), "/f"),
        BrokerPart(("*.local",), "/f"),
        BrokerPart(("h",), "/f", port=0),
        BrokerPart(("h",), "/f", port=70_000),
        BrokerPart(("h",), "/f", listen="all"),
        BrokerPart(("h",), "/f\nallow_anonymous true"),
        BrokerPart(("h",), ""),
        BrokerPart(("h",), "/f", data="/d\nuser root"),
        BrokerPart(("h",), "/f", user="a\nb"),
    ],
)
def test_what_cannot_be_a_broker_is_refused(broker, tmp_path, opened):
    if broker.listen == "all":
        broker = msgspec.structs.replace(broker, listen="all interfaces")
    wanted = msgspec.structs.replace(opened.deployment, broker=broker, issued=())
    with pytest.raises(SecurityError):
        DeploymentFolder.create(tmp_path / "other", wanted, NOW)
    assert not (tmp_path / "other").exists()


def test_the_configuration_lets_in_no_client_without_a_certificate():
    lines = configuration_text(BrokerPart(("h",), "/etc/fjord/", data="/var/lib/d")).splitlines()
    assert "listener 8883 127.0.0.1" in lines
    assert {"require_certificate true", "use_identity_as_username true", "allow_anonymous false"} <= set(lines)
    assert "crlfile /etc/fjord/revoked.crl" in lines
    assert {"persistence true", "persistence_location /var/lib/d/", "autosave_interval 30"} <= set(lines)


@pytest.mark.parametrize("damage", [b"", b"{}", b"[]", b"\xff", b'{"format": 2}'])
def test_a_damaged_deployment_is_named(opened, damage):
    (opened.path / "deployment.json").write_bytes(damage)
    with pytest.raises(SecurityError, match=r"deployment\.json is damaged"):
        DeploymentFolder.open(opened.path)


def test_a_deployment_of_a_later_version_is_refused(opened):
    file = opened.path / "deployment.json"
    file.write_bytes(file.read_bytes().replace(b'"format": 1', b'"format": 9'))
    with pytest.raises(SecurityError, match="has format 9"):
        DeploymentFolder.open(opened.path)


def test_without_its_authority_a_folder_signs_nothing(opened):
    (opened.path / "authority" / "ca.key").unlink()
    with pytest.raises(SecurityError, match="cannot read the authority"):
        opened.renew(["wall"], NOW)
