"""The proxy's settings: every default in one place, written by `fjord proxy --print-config` as a TOML file.

A value comes from the command line, else from the environment, else from the file, else it is the default.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from protocols.acquisition.program_reports import ProgramStyle
from protocols.errors import FjordError, TopicError
from protocols.mqtt.broker_address import PASSWORD_FILE_VARIABLE, PASSWORD_VARIABLE, TLS_VARIABLES
from protocols.mqtt.link import SILENCE_SECONDS, BrokerAddress
from protocols.mqtt.messages import DEFAULT_PORT, DEFAULT_TLS_PORT
from protocols.security.errors import SecurityError
from protocols.security.tls import TlsFiles, TlsNames
from protocols.text.byte_sizes import parse_byte_size
from protocols.text.closeness import did_you_mean
from protocols.text.durations import LONGEST_OPTION_US, LONGEST_PAUSE_US, format_duration, parse_duration_us
from protocols.wire.programs import ListenSchedule
from protocols.wire.topics import check_part_name
from proxy.errors import ConfigurationError
from proxy.fleet.batching import BatchLimits
from proxy.fleet.fleet_members import FleetLimits
from proxy.motes.clock_bounds import ClockBounds
from proxy.motes.tracking_limits import TrackingLimits

TLS_SETTINGS: Final = TlsNames("broker_ca", "broker_certificate", "broker_key")
_SHARED_VARIABLES: Final = {
    "broker": "FJORD_BROKER",
    "username": "FJORD_BROKER_USERNAME",
    TLS_SETTINGS.authority: TLS_VARIABLES.authority,
    TLS_SETTINGS.certificate: TLS_VARIABLES.certificate,
    TLS_SETTINGS.key: TLS_VARIABLES.key,
}
_LISTEN: Final = ListenSchedule()
_DURATION: Final = "duration"
_SIZE: Final = "size"
_LARGEST_PORT: Final = 65_535
_SMALLEST_BATCH_BYTES: Final = 64 * 1024
_BATCHES_ON_DISK: Final = 16
"""A disk has room for so many of the largest batches, at least."""


def _duration(value: object) -> object:
    return parse_duration_us(value) if isinstance(value, str) else value


def _size(value: object) -> object:
    return parse_byte_size(value) if isinstance(value, str) else value


def _name(value: object) -> object:
    return check_part_name(value, "proxy's name") if isinstance(value, str) else value


Duration = Annotated[
    int, BeforeValidator(_duration), Field(ge=1, le=LONGEST_OPTION_US, json_schema_extra={"form": _DURATION})
]
DurationOrNone = Annotated[
    int, BeforeValidator(_duration), Field(ge=0, le=LONGEST_OPTION_US, json_schema_extra={"form": _DURATION})
]
Size = Annotated[int, BeforeValidator(_size), Field(ge=1, json_schema_extra={"form": _SIZE})]


class ProxySettings(BaseModel):
    """How a proxy runs. Durations are microseconds and sizes bytes inside; people write ``100ms`` and ``64KiB``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Annotated[str, BeforeValidator(_name)] = Field("roadside", description="Name of this proxy, in its topics.")
    broker: str = Field(
        "127.0.0.1",
        description=f"The broker, HOST or HOST:PORT; else the port is {DEFAULT_PORT}, with TLS {DEFAULT_TLS_PORT}.",
    )
    broker_ca: str = Field(
        "", description="File of the authority that the broker's certificate comes from; empty for no TLS."
    )
    broker_certificate: str = Field("", description="File of the certificate that the broker is shown; empty for none.")
    broker_key: str = Field("", description="File of that certificate's key.")
    username: str = Field(
        "",
        description="User at the broker; empty for none. The password is read from "
        f"{PASSWORD_VARIABLE}, or from the file that {PASSWORD_FILE_VARIABLE} names.",
    )
    broker_silence: Duration = Field(
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
    device_session_expiry: Duration = Field(
        7 * 86_400_000_000, ge=1_000_000, description="How long it keeps them; with MQTT 3.1.1 it decides by itself."
    )
    flush_interval: Duration = Field(
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
    resend_after: Duration = Field(
        3_000_000, description="Send again after this long without an acknowledgement, or sooner if that is unusual."
    )
    silence_after: Duration | None = Field(
        None,
        description="A mote that is silent for this long holds back no others; unset, three times its longest gap.",
    )
    patience: Duration = Field(
        10_000_000, description="How long a mote that should sample and has not begun holds back the others."
    )
    max_clock_ahead: DurationOrNone = Field(
        60_000_000, description="A clock further ahead is wrong, and its samples are rejected; 0s accepts any."
    )
    max_clock_behind: DurationOrNone = Field(
        3_600_000_000,
        description="A clock that is further behind is wrong, and its samples are rejected; 0s accepts any.",
    )
    clock_tolerance: Duration | None = Field(
        None, description="Correct motes' clocks that may be off by more than this; unset never does (as replays need)."
    )
    reorder_within: DurationOrNone = Field(
        2_000_000, description="Packets wait this long for those they overtook; 0s accepts them in any order."
    )
    samples_per_packet: int = Field(1, ge=1, le=1024, description="Samples a mote packs into one packet.")
    longest_silence: Duration | None = Field(
        None,
        description="Motes that sample send a packet at least this often, even if they have nothing to report: answers "
        "come earlier, which costs energy. Unset, they do so after twice listen_every.",
    )
    listen_every: Duration = Field(_LISTEN.every_us, description="Time between two listen windows of a mote.")
    listen_for: Duration = Field(_LISTEN.for_us, le=60_000_000, description="Length of a listen window.")
    entry_interval: Duration = Field(1_000_000, description="Shortest time between two catalog entries of one mote.")
    counters_interval: Duration = Field(
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
            files = TLS_SETTINGS.read(self.model_dump(include=set(_SHARED_VARIABLES)))
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


def variable_of(name: str) -> str:
    """Return the environment variable of a setting."""
    return _SHARED_VARIABLES.get(name, f"FJORD_PROXY_{name.upper()}")


def load_settings(
    options: Mapping[str, object], environment: Mapping[str, str], file: Path | None = None
) -> ProxySettings:
    """Return the settings; `options` of None are ignored.

    Raises
    ------
    ConfigurationError
        Names the setting that is wrong, and where it comes from.
    """
    values: dict[str, object] = {}
    origin: dict[str, str] = {}
    for name, value in _read_file(file).items():
        values[name], origin[name] = value, str(file)
    for name in ProxySettings.model_fields:
        if variable_of(name) in environment:
            values[name], origin[name] = environment[variable_of(name)], variable_of(name)
        option = options.get(name)
        if option is not None:
            values[name], origin[name] = option, "--" + name.replace("_", "-")
    try:
        settings = ProxySettings.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0]) if first["loc"] else "settings"
        if first["type"] == "extra_forbidden":
            meant = did_you_mean(name, ProxySettings.model_fields)
            raise ConfigurationError(
                f"{origin.get(name, 'default')}: there is no setting {name!r}",
                hint=meant or "`fjord proxy --print-config` shows every setting",
            ) from error
        raise ConfigurationError(
            f"{name} = {first['input']!r} ({origin.get(name, 'default')}): {first['msg']}",
            hint="`fjord proxy --print-config` shows every setting",
        ) from error
    except TopicError as error:
        raise ConfigurationError(f"{error.message} ({origin.get('name', 'default')})", hint=error.hint) from error
    except FjordError as error:
        raise ConfigurationError(error.message, hint=error.hint) from error
    if settings.listen_for > settings.listen_every:
        raise ConfigurationError("listen_for is longer than listen_every", hint="make listen windows shorter or rarer")
    settings.broker_address()
    return settings


def _read_file(file: Path | None) -> dict[str, Any]:
    if file is None:
        return {}
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"cannot read {file}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{file} is not TOML: {error}") from error


def as_toml(settings: ProxySettings) -> str:
    """Return the settings as a commented TOML file; unset ones are commented out."""
    lines = ["# Settings of `fjord proxy --config FILE`. Options and environment variables come before this file.", ""]
    for name, field in ProxySettings.model_fields.items():
        lines.append(f"# {field.description} [{variable_of(name)}]")
        value = getattr(settings, name)
        lines += [f"# {name} =" if value is None else f"{name} = {_toml_value(name, value)}", ""]
    return "\n".join(lines)


def _toml_value(name: str, value: str | int) -> str:
    form = ProxySettings.model_json_schema()["properties"][name]
    forms = {each.get("form") for each in (form, *form.get("anyOf", []))}
    if _DURATION in forms and isinstance(value, int):
        return json.dumps(format_duration(value))
    if _SIZE in forms and isinstance(value, int):
        return json.dumps(_format_size(value))
    return json.dumps(value)


def _format_size(size_bytes: int) -> str:
    for unit, unit_bytes in (("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024)):
        if size_bytes % unit_bytes == 0:
            return f"{size_bytes // unit_bytes}{unit}"
    return f"{size_bytes}B"


def fleet_limits(settings: ProxySettings) -> FleetLimits:
    """Return the settings that concern the fleet."""
    return FleetLimits(
        motes=settings.max_motes,
        streams=settings.max_streams,
        tracking=TrackingLimits(
            silence_after_us=settings.silence_after,
            patience_us=settings.patience,
            clock=ClockBounds(settings.max_clock_ahead or None, settings.max_clock_behind or None),
            clock_tolerance_us=settings.clock_tolerance,
            reorder_within_us=settings.reorder_within,
        ),
        batches=BatchLimits(settings.waiting_samples, settings.batch_rows, settings.batch_size),
        style=ProgramStyle(
            settings.samples_per_packet,
            ListenSchedule(settings.listen_every, settings.listen_for),
            settings.longest_silence or 0,
        ),
    )
