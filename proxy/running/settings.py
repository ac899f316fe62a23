"""The proxy's settings: every default in one place, written by `fjord proxy --print-config` as a TOML file.

A value comes from the command line, else from the environment, else from the file, else it is the default.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from protocols.command_line.settings_file import ByteSize, Duration, Program, SettingsError, Shown, load, reader
from protocols.mqtt.broker_address import PASSWORD_FILE_VARIABLE, PASSWORD_VARIABLE, SECRETS_HINT, TLS_VARIABLES
from protocols.mqtt.link import SILENCE_SECONDS, BrokerAddress
from protocols.mqtt.messages import DEFAULT_PORT, DEFAULT_TLS_PORT
from protocols.security.errors import SecurityError
from protocols.security.tls import TlsFiles, TlsNames
from protocols.text.quantities import LONGEST_OPTION_US, LONGEST_PAUSE_US
from protocols.wire.programs import ListenSchedule
from protocols.wire.topics import check_part_name
from proxy.errors import ConfigurationError

TLS_SETTINGS: Final = TlsNames("broker_ca", "broker_certificate", "broker_key")
PROGRAM: Final = Program("fjord proxy", "FJORD_PROXY_")
_LISTEN: Final = ListenSchedule()
_LARGEST_PORT: Final = 65_535
_SMALLEST_BATCH_BYTES: Final = 64 * 1024
_BATCHES_ON_DISK: Final = 16
"""A disk has room for so many of the largest batches, at least."""
_SECOND_US: Final = 1_000_000
_TLS_FIELDS: Final = {TLS_SETTINGS.authority, TLS_SETTINGS.certificate, TLS_SETTINGS.key}


def _name(text: str) -> str:
    return check_part_name(text, "proxy's name")


Pause = Annotated[int, Duration(least_us=1), Field(ge=1, le=LONGEST_OPTION_US)]
PauseOrNone = Annotated[int, Duration(), Field(ge=0, le=LONGEST_OPTION_US)]
Size = Annotated[int, ByteSize(), Field(ge=1)]


class ProxySettings(BaseModel):
    """How a proxy runs. Durations are microseconds and sizes bytes inside; people write ``100ms`` and ``64KiB``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Annotated[str, BeforeValidator(reader(_name))] = Field(
        "roadside", description="Name of this proxy, in its topics."
    )
    broker: Annotated[str, Shown(variable="FJORD_BROKER")] = Field(
        "127.0.0.1",
        description=f"The broker, HOST or HOST:PORT; else the port is {DEFAULT_PORT}, with TLS {DEFAULT_TLS_PORT}.",
    )
    broker_ca: Annotated[str, Shown(variable=TLS_VARIABLES.authority, metavar="FILE")] = Field(
        "", description="File of the authority that the broker's certificate comes from; empty for no TLS."
    )
    broker_certificate: Annotated[str, Shown(variable=TLS_VARIABLES.certificate, metavar="FILE")] = Field(
        "", description="File of the certificate that the broker is shown; empty for none."
    )
    broker_key: Annotated[str, Shown(variable=TLS_VARIABLES.key, metavar="FILE")] = Field(
        "", description="File of that certificate's key."
    )
    username: Annotated[str, Shown(variable="FJORD_BROKER_USERNAME")] = Field(
        "",
        description="User at the broker; empty for none. The password is read from "
        f"{PASSWORD_VARIABLE}, or from the file that {PASSWORD_FILE_VARIABLE} names.",
    )
    broker_silence: Pause = Field(
        round(SILENCE_SECONDS * 1e6),
        ge=1_000_000,
        description="A broker that sends nothing for this long has hung: connect again.",
    )
    data: str = Field("", description="Folder of catalog, spool and quarantine; empty for .fjord/proxy-<name>.")
    cluster: Annotated[str, Field(pattern=r"^([A-Za-z0-9_.-]{1,64}/[A-Za-z0-9_.-]{1,64})?$")] = Field(
        "",
        description="The one cluster that is obeyed, as NAME/IDENTITY; empty for the first that acknowledges a batch.",
    )
    keys: str = Field("", description="File of this proxy's keys, from `fjord security keys`; empty for none.")
    drivers: str = Field("", description="TOML file of drivers for devices of other makers; empty for none.")
    device_session: Literal["auto", "always", "never"] = Field(
        "auto",
        description="Whether the broker keeps messages of devices while the proxy is away: auto if it speaks MQTT 5, "
        "always also with MQTT 3.1.1, or never.",
    )
    device_session_expiry: Pause = Field(
        7 * 86_400_000_000, ge=1_000_000, description="How long it keeps them; with MQTT 3.1.1 it decides by itself."
    )
    flush_interval: Pause = Field(
        100_000, le=LONGEST_PAUSE_US, description="Longest time that an accepted sample waits for its batch."
    )
    batch_rows: int = Field(10_000, ge=1, le=1_000_000, description="Most samples in one batch.")
    batch_size: Size = Field(4 * 1024 * 1024, le=7 * 1024 * 1024, description="Largest size of one batch.")
    waiting_samples: int = Field(
        100_000,
        ge=1,
        description="Samples of a stream that wait in memory while the spool is full; beyond, the oldest are dropped.",
    )
    spool_size: Size = Field(
        1024**3, description="Total size of the files of the spool, which keeps batches until the cluster has them."
    )
    in_flight: int = Field(32, ge=1, le=10_000, description="Batches of one stream published and not yet acknowledged.")
    resend_after: Pause = Field(
        3_000_000, description="Send again after this long without an acknowledgement, or sooner if that is unusual."
    )
    silence_after: Pause | None = Field(
        None,
        description="A mote that is silent for this long holds back no others; unset, three times its longest gap.",
    )
    patience: Pause = Field(
        10_000_000, description="How long a mote that should sample and has not begun holds back the others."
    )
    max_clock_ahead: PauseOrNone = Field(
        60_000_000, description="A clock further ahead is wrong, and its samples are rejected; 0s accepts any."
    )
    max_clock_behind: PauseOrNone = Field(
        3_600_000_000,
        description="A clock that is further behind is wrong, and its samples are rejected; 0s accepts any.",
    )
    clock_tolerance: Pause | None = Field(
        None, description="Correct motes' clocks that may be off by more than this; unset never does (as replays need)."
    )
    reorder_within: PauseOrNone = Field(
        2_000_000, description="Packets wait this long for those they overtook; 0s accepts them in any order."
    )
    samples_per_packet: int = Field(1, ge=1, le=1024, description="Samples a mote packs into one packet.")
    longest_silence: Pause | None = Field(
        None,
        description="Motes that sample send a packet at least this often, even if they have nothing to report: answers "
        "come earlier, which costs energy. Unset, they do so after twice listen_every.",
    )
    listen_every: Pause = Field(_LISTEN.every_us, description="Time between two listen windows of a mote.")
    listen_for: Pause = Field(_LISTEN.for_us, le=60_000_000, description="Length of a listen window.")
    entry_interval: Pause = Field(1_000_000, description="Shortest time between two catalog entries of one mote.")
    counters_interval: Pause = Field(
        10_000_000, description="Like entry_interval, when only the mote's counters have changed."
    )
    max_motes: int = Field(10_000, ge=1, description="Most motes of this proxy.")
    max_streams: int = Field(1_000, ge=1, description="Most streams of this proxy.")
    quarantine_entries: int = Field(1_000, ge=1, le=100_000, description="Rejected frames kept for inspection.")
    metrics_port: int | None = Field(
        None, ge=1, le=_LARGEST_PORT, description="Port for Prometheus on 127.0.0.1; unset for none."
    )

    @property
    def folder(self) -> Path:
        """The data folder."""
        return Path(self.data or f".fjord/proxy-{self.name}")

    @property
    def broker_tls(self) -> TlsFiles | None:
        """Files for TLS to the broker; None for none.

        Raises
        ------
        ConfigurationError
            If there is no authority, or one of certificate and key is missing.
        """
        try:
            files = TLS_SETTINGS.read(self.model_dump(include=_TLS_FIELDS))
        except SecurityError as error:
            raise ConfigurationError(error.message, hint=error.hint) from error
        if files is not None and files.authority is None:
            raise ConfigurationError(
                f"{TLS_SETTINGS.certificate} is set without {TLS_SETTINGS.authority}",
                hint="name the authority that the broker's certificate comes from",
            )
        return files

    def broker_address(self, password: str | None = None) -> BrokerAddress:
        """Return where the broker is.

        Raises
        ------
        ConfigurationError
            If it is no HOST or HOST:PORT, or files for TLS are named in part.
        """
        tls = self.broker_tls
        host, port = parse_host_port(self.broker, DEFAULT_PORT if tls is None else DEFAULT_TLS_PORT)
        return BrokerAddress(host, port, self.username or None, password if self.username else None, tls)


def parse_host_port(text: str, default_port: int = DEFAULT_PORT) -> tuple[str, int]:
    """Parse ``HOST``, ``HOST:PORT`` or ``[IPv6]:PORT``.

    Raises
    ------
    ConfigurationError
        If it has another form.

    Examples
    --------
    >>> parse_host_port("[::1]:1884"), parse_host_port("gateway")
    (('::1', 1884), ('gateway', 1883))
    """
    if "@" in text:
        raise ConfigurationError("the broker's address has a user or a password in it", hint=SECRETS_HINT)
    host, separator, port = text.strip().rpartition(":")
    if not separator or text.strip().endswith("]"):
        host, port = text.strip(), str(default_port)
    host = host.removeprefix("[").removesuffix("]")
    if not host or any(each.isspace() for each in host) or "/" in host:
        raise ConfigurationError(f"{text!r} is not the address of a broker", hint="write HOST or HOST:PORT")
    if not (
        port.isascii() and port.isdigit() and len(port) <= len(str(_LARGEST_PORT)) and 1 <= int(port) <= _LARGEST_PORT
    ):
        raise ConfigurationError(
            f"{port!r} is not a port, in the broker's address {text!r}", hint=f"a port is 1 to {_LARGEST_PORT}"
        )
    return host, int(port)


def fitting(settings: ProxySettings, disk_bytes: int) -> ProxySettings:
    """Return the settings with batches that fit on a small disk: the spool writes each to its log and its database."""
    largest = max(_SMALLEST_BATCH_BYTES, disk_bytes // _BATCHES_ON_DISK)
    return settings.model_copy(update={"batch_size": min(settings.batch_size, largest)})


def load_settings(
    options: Mapping[str, object], environment: Mapping[str, str], file: Path | None = None
) -> ProxySettings:
    """Return the settings; `options` of None are ignored.

    Raises
    ------
    ConfigurationError
        Names the setting that is wrong, and where it comes from.
    """
    try:
        settings = load(ProxySettings, PROGRAM, options, environment, file)
    except SettingsError as error:
        raise ConfigurationError(error.message, hint=error.hint) from error
    if settings.listen_for > settings.listen_every:
        raise ConfigurationError("listen_for is longer than listen_every", hint="make listen windows shorter or rarer")
    settings.broker_address()
    return settings
