from __future__ import annotations

import pytest

from protocols.command_line.settings_file import as_toml
from protocols.mqtt.link import BrokerAddress
from protocols.security.tls import TlsFiles
from proxy.errors import ConfigurationError
from proxy.running.settings import PROGRAM, ProxySettings, load_settings, parse_host_port


def test_printed_settings_read_back_as_the_defaults(tmp_path):
    file = tmp_path / "proxy.toml"
    file.write_text(as_toml(ProxySettings(), PROGRAM))
    assert load_settings({}, {}, file) == ProxySettings()
    for name in ProxySettings.model_fields:
        assert f"\n{name} = " in file.read_text() or f"\n# {name} =" in file.read_text()


def test_option_before_environment_before_file_before_default(tmp_path):
    file = tmp_path / "proxy.toml"
    file.write_text('flush_interval = "1s"\nspool_size = "1MiB"\nbatch_rows = 5\n')
    environment = {"FJORD_PROXY_FLUSH_INTERVAL": "2s", "FJORD_PROXY_SPOOL_SIZE": "2MiB", "FJORD_BROKER": "b:1"}
    settings = load_settings({"flush_interval": 3_000_000, "name": None}, environment, file)
    assert (settings.flush_interval, settings.spool_size, settings.batch_rows) == (3_000_000, 2 * 1024**2, 5)
    assert (settings.broker, settings.name, str(settings.folder)) == ("b:1", "roadside", ".fjord/proxy-roadside")


@pytest.mark.parametrize(("name", "hint"), [("brokr", "did you mean broker?"), ("zzz", "--print-config")])
def test_an_unknown_setting_is_compared_with_those_there_are(tmp_path, name, hint):
    file = tmp_path / "proxy.toml"
    file.write_text(f'{name} = "x"\n')
    with pytest.raises(ConfigurationError, match=f"proxy.toml:1: there is no setting '{name}'") as caught:
        load_settings({}, {}, file)
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('colour = "red"', "colour"),
        ('flush_interval = "soon"', "'soon' is not a duration"),
        ('name = "a/b"', "'a/b' cannot be part of a topic"),
        ("batch_rows = 0", "batch_rows = 0"),
        ('broker = "host:port"', "'port' is not a port"),
        ('listen_every = "10ms"', "listen_for is longer"),
        ('flush_interval = "2h"', "flush_interval"),
        ('resend_after = "106751991d"', "resend_after"),
        ('max_clock_behind = "100000d"', "max_clock_behind"),
        ("this is no TOML", "is not TOML"),
    ],
)
def test_a_bad_settings_file_is_rejected_with_the_reason(tmp_path, text, words):
    file = tmp_path / "proxy.toml"
    file.write_text(text)
    with pytest.raises(ConfigurationError, match=r"(?s).*") as caught:
        load_settings({}, {}, file)
    assert words in str(caught.value)


def test_a_missing_settings_file_is_rejected(tmp_path):
    with pytest.raises(ConfigurationError, match="cannot read"):
        load_settings({}, {}, tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gateway", ("gateway", 1883)),
        ("gateway:1884", ("gateway", 1884)),
        ("[::1]", ("::1", 1883)),
        ("[::1]:99", ("::1", 99)),
    ],
)
def test_host_and_port_are_read(text, expected):
    assert parse_host_port(text) == expected


@pytest.mark.parametrize("text", ["", ":1883", "a b", "h:0", "h:65536", "h:1x", "mqtt://h:1", "h:" + "9" * 5000])
def test_malformed_addresses_are_rejected(text):
    with pytest.raises(ConfigurationError):
        parse_host_port(text)


def test_password_is_never_shown():
    address = ProxySettings(username="u").broker_address("secret")
    assert address.password == "secret"
    assert "secret" not in repr(address)


def test_files_for_tls_come_from_options_the_shared_variables_or_the_file(tmp_path):
    file = tmp_path / "proxy.toml"
    file.write_text('broker = "gateway"\nbroker_ca = "a.crt"\nbroker_certificate = "b.crt"\nbroker_key = "b.key"\n')
    environment = {"FJORD_BROKER_CERTIFICATE": "c.crt", "FJORD_BROKER_KEY": "c.key"}
    settings = load_settings({"broker_key": "d.key"}, environment, file)
    assert settings.broker_tls == TlsFiles("a.crt", "c.crt", "d.key")
    assert settings.broker_address() == BrokerAddress("gateway", 8883, tls=settings.broker_tls)
    assert load_settings({}, {"FJORD_BROKER": "gateway:1"}, file).broker_address().port == 1
    assert load_settings({}, {"FJORD_BROKER_CA": ""}, None).broker_address() == BrokerAddress("127.0.0.1", 1883)
    printed = as_toml(settings, PROGRAM)
    assert 'broker_ca = "a.crt"' in printed
    assert "[FJORD_BROKER_CA]" in printed


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('broker_certificate = "b"', "broker_certificate is set without broker_key"),
        ('broker_ca = "a"\nbroker_key = "b"', "broker_key is set without broker_certificate"),
        ('broker_certificate = "b"\nbroker_key = "c"', "broker_certificate is set without broker_ca"),
    ],
)
def test_files_for_tls_that_are_named_in_part_are_refused(tmp_path, text, words):
    file = tmp_path / "proxy.toml"
    file.write_text(text)
    with pytest.raises(ConfigurationError, match=words):
        load_settings({}, {}, file)
