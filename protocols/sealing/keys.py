"""The keys of a deployment: which there are, in which files they are kept, and how they are renewed.

One file for each part, with no more than that part needs::

    cluster.keys             the cluster's signing key, and with what each proxy's signatures are checked
    proxy-roadside.keys      the proxy's signing key, with what those of the cluster and of all proxies are checked,
                             and the master of its motes
    motes-roadside.keys      the master of these motes: for what simulates them, or makes them

The secret of a mote follows from the master, its name and a generation; the mote gets nothing else. A generation that
is raised revokes the secrets before it.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from protocols.errors import SettingsError, TopicError
from protocols.security.private_files import SECRET, write_file
from protocols.wire.topics import check_name, check_part_name

SECRET_BYTES: Final = 32
MOST_GENERATIONS: Final = 2**32
CLUSTER_FILE: Final = "cluster.keys"
_FIRST_LINE: Final = (
    "# Keys of Fjord: what is secret here proves which part a frame is from. Give it to that part only.\n"
)


@dataclass(frozen=True, slots=True)
class MoteKeys:
    """The keys of the motes of one proxy. Pure.

    Parameters
    ----------
    master
        Their secrets follow from it.
    generations
        Of motes whose secret was renewed; others have generation 1.
    """

    master: bytes = field(repr=False)
    generations: Mapping[str, int] = field(default_factory=dict)

    def secret(self, mote: str) -> bytes:
        """Return the secret of a mote."""
        known = f"{self.generations.get(mote, 1)}/{mote}".encode()
        return hashlib.blake2b(known, key=self.master, digest_size=SECRET_BYTES, person=b"fjord mote").digest()


@dataclass(frozen=True, slots=True)
class PartKeys:
    """The keys of a proxy or cluster. Pure.

    Parameters
    ----------
    signing
        Its own key.
    cluster
        What the cluster's frames are checked with.
    proxies
        By name: what the frames of proxies are checked with. Frames of others are refused.
    motes
        Of the proxy's motes; None for a cluster.
    """

    signing: bytes = field(repr=False)
    cluster: bytes
    proxies: Mapping[str, bytes]
    motes: MoteKeys | None = None


@dataclass(frozen=True, slots=True)
class Deployment:
    """All keys of a deployment. Pure.

    Parameters
    ----------
    cluster
        The cluster's signing key.
    proxies
        By name: the signing key of each proxy.
    motes
        By proxy.
    """

    cluster: bytes = field(repr=False)
    proxies: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    motes: Mapping[str, MoteKeys] = field(default_factory=dict, repr=False)

    def renewed(self, random: bytes, *, cluster: bool = False, proxies: Collection[str] = ()) -> Deployment:
        """Return the keys with new ones for the cluster, or for these proxies, known before or not.

        Parameters
        ----------
        random
            What new keys are made of: 32 bytes that nothing else is made of.
        cluster, proxies
            Which get new keys. A proxy's motes keep theirs; a new proxy's get some.
        """
        masters = {name: MoteKeys(_drawn(random, f"motes {name}")) for name in proxies if name not in self.motes}
        return Deployment(
            _drawn(random, "cluster") if cluster else self.cluster,
            {**self.proxies, **{check_part_name(name): _drawn(random, f"proxy {name}") for name in proxies}},
            {**self.motes, **masters},
        )

    def without(self, proxy: str) -> Deployment:
        """Return the keys without those of a proxy and its motes; raises SettingsError if there are none."""
        self._known(proxy)
        return replace(
            self,
            proxies={name: key for name, key in self.proxies.items() if name != proxy},
            motes={name: keys for name, keys in self.motes.items() if name != proxy},
        )

    def with_renewed_mote(self, proxy: str, mote: str) -> Deployment:
        """Return the keys with a new secret for a mote; raises SettingsError if its proxy has no keys."""
        self._known(proxy)
        keys = self.motes[proxy]
        generation = keys.generations.get(_checked(mote), 1) + 1
        renewed = replace(keys, generations={**keys.generations, mote: generation})
        return replace(self, motes={**self.motes, proxy: renewed})

    def files(self) -> dict[str, str]:
        """Return the content of each file, by name. All are secret."""
        checked = {name: _public(key) for name, key in sorted(self.proxies.items())}
        found = {CLUSTER_FILE: _file({"signing": self.cluster}, {"proxies": checked})}
        for name, key in sorted(self.proxies.items()):
            own = {"signing": key, "cluster": _public(self.cluster)}
            motes = self.motes[name]
            tables: dict[str, Mapping[str, bytes] | Mapping[str, int]] = {
                "proxies": checked,
                "motes": {"master": motes.master},
                "generations": motes.generations,
            }
            found[file_of_proxy(name)] = _file(own, tables)
            found[file_of_motes(name)] = _file({"master": motes.master}, {"generations": motes.generations})
        return found

    def _known(self, proxy: str) -> None:
        if proxy not in self.proxies:
            raise SettingsError(f"there are no keys of proxy {proxy!r}", hint=f"there are {', '.join(self.proxies)}")


def make_keys(random: bytes, proxies: Collection[str]) -> Deployment:
    """Return new keys for a deployment with these proxies, made of 32 random bytes. Pure."""
    return Deployment(_drawn(random, "cluster")).renewed(random, proxies=proxies)


def file_of_proxy(proxy: str) -> str:
    """Return the name of the file of a proxy's keys."""
    return f"proxy-{check_part_name(proxy)}.keys"


def file_of_motes(proxy: str) -> str:
    """Return the name of the file with the keys of a proxy's motes."""
    return f"motes-{check_part_name(proxy)}.keys"


def read_deployment(files: Mapping[str, str]) -> Deployment:
    """Return the keys in the files of a deployment, as :meth:`Deployment.files` wrote them.

    Raises
    ------
    SettingsError
        If one is missing, or is none. No content is quoted.
    """
    cluster = read_part_keys(_of(files, CLUSTER_FILE), CLUSTER_FILE)
    proxies, motes = {}, {}
    for name in cluster.proxies:
        found = read_part_keys(_of(files, file_of_proxy(name)), file_of_proxy(name))
        if found.motes is None:
            raise _wrong(file_of_proxy(name), "has no [motes]")
        proxies[name], motes[name] = found.signing, found.motes
    return Deployment(cluster.signing, proxies, motes)


def read_part_keys(text: str, origin: str) -> PartKeys:
    """Return the keys of a proxy or cluster in the text of their file.

    Raises
    ------
    SettingsError
        If they are none. No content is quoted.
    """
    table = _table(text, origin, {"signing", "cluster", "proxies", "motes", "generations"})
    signing = _bytes_of(table, "signing", origin)
    cluster = _bytes_of(table, "cluster", origin) if "cluster" in table else _public(signing)
    proxies = _table_of(table, "proxies", origin)
    known = {_named(name, origin): _bytes_of(proxies, name, origin) for name in proxies}
    for each in (cluster, *known.values()):
        Ed25519PublicKey.from_public_bytes(each)
    motes = None
    if "motes" in table:
        motes = MoteKeys(_bytes_of(_table_of(table, "motes", origin), "master", origin), _generations(table, origin))
    return PartKeys(signing, cluster, known, motes)


def read_mote_keys(text: str, origin: str) -> MoteKeys:
    """Return the keys of motes in the text of their file.

    Raises
    ------
    SettingsError
        If they are none. No content is quoted.
    """
    table = _table(text, origin, {"master", "generations"})
    return MoteKeys(_bytes_of(table, "master", origin), _generations(table, origin))


def _drawn(random: bytes, purpose: str) -> bytes:
    if len(random) != SECRET_BYTES:
        raise ValueError(f"keys are made of {SECRET_BYTES} random bytes")
    return hashlib.blake2b(purpose.encode(), key=random, digest_size=SECRET_BYTES, person=b"fjord keys").digest()


def _public(signing: bytes) -> bytes:
    return Ed25519PrivateKey.from_private_bytes(signing).public_key().public_bytes_raw()


def _checked(name: str) -> str:
    return check_name(name)


def _file(own: Mapping[str, bytes], tables: Mapping[str, Mapping[str, bytes] | Mapping[str, int]]) -> str:
    lines = [f'{name} = "{value.hex()}"' for name, value in own.items()]
    for table, values in tables.items():
        if values:
            lines += ["", f"[{table}]"]
        lines += [
            f'"{name}" = {value}' if isinstance(value, int) else f'"{name}" = "{value.hex()}"'
            for name, value in values.items()
        ]
    return _FIRST_LINE + "\n".join(lines) + "\n"


def _of(files: Mapping[str, str], name: str) -> str:
    if name not in files:
        raise SettingsError(f"{name} is missing among the keys of the deployment")
    return files[name]


def _wrong(origin: str, problem: str) -> SettingsError:
    return SettingsError(f"{origin} is no file of keys: it {problem}", hint="make keys with `fjord security keys`")


def _table(text: str, origin: str, known: Collection[str]) -> dict[str, Any]:
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        raise _wrong(origin, "is not TOML") from None  # the error quotes it
    if unknown := table.keys() - known:
        raise _wrong(origin, f"has {len(unknown)} unknown entries")
    return table


def _table_of(table: Mapping[str, Any], name: str, origin: str) -> Mapping[str, Any]:
    found = table.get(name, {})
    if not isinstance(found, dict):
        raise _wrong(origin, f"has no table [{name}]")
    return found


def _bytes_of(table: Mapping[str, Any], name: str, origin: str) -> bytes:
    value = table.get(name)
    try:
        found = bytes.fromhex(value) if isinstance(value, str) else b""
    except ValueError:
        found = b""
    if len(found) != SECRET_BYTES:
        raise _wrong(origin, f"lacks a key of {SECRET_BYTES} bytes where one is needed")
    return found


def _named(name: str, origin: str) -> str:
    try:
        return check_name(name)
    except TopicError:
        raise _wrong(origin, "names a part as none can be named") from None


def _generations(table: Mapping[str, Any], origin: str) -> dict[str, int]:
    found = _table_of(table, "generations", origin)
    for each in found.values():
        if not isinstance(each, int) or isinstance(each, bool) or not 1 <= each < MOST_GENERATIONS:
            raise _wrong(origin, "has a generation that is no number from 1 on")
    return {_named(name, origin): generation for name, generation in found.items()}


SUFFIX = ".keys"


def read_files(folder: Path) -> dict[str, str]:
    """Return the content of the files of keys in a folder, by name.

    Raises
    ------
    SettingsError
        If one cannot be read.
    """
    try:
        return {each.name: each.read_text(encoding="utf-8") for each in sorted(folder.glob(f"*{SUFFIX}"))}
    except OSError as error:
        raise SettingsError(f"cannot read the keys in {folder}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise SettingsError(f"a file of keys in {folder} is no text") from None


def write_files(folder: Path, before: dict[str, str], keys: Deployment) -> list[str]:
    """Write the files that have changed, readable by their owner only, and remove those that are gone; return which.

    The cluster's file is written last: until then the cluster knows no part under a new key.

    Raises
    ------
    SecurityError
        If one cannot be written.
    SettingsError
        If one cannot be removed.
    """
    after, changed = keys.files(), []
    for name in sorted(after, key=lambda name: (name == CLUSTER_FILE, name)):
        if before.get(name) != after[name]:
            write_file(folder / name, after[name].encode(), mode=SECRET, overwrite=True)
            changed.append(f"written: {folder / name}")
    for name in sorted(_ours(before) - after.keys()):
        try:
            (folder / name).unlink(missing_ok=True)
        except OSError as error:
            raise SettingsError(f"cannot remove {folder / name}: {error.strerror}") from error
        changed.append(f"removed: {folder / name}")
    return changed


def _ours(before: dict[str, str]) -> set[str]:
    """Return the files that the keys before were in; others, such as copies that were kept, are left alone."""
    return set(read_deployment(before).files()) & before.keys() if CLUSTER_FILE in before else set()
