"""The folder of a deployment: made, added to, renewed, revoked; with passwords of devices without a certificate.

**Passwords of devices that cannot show a certificate, as Mosquitto's ``password_file`` has them.**

A line has a name and a PBKDF2 hash of SHA-512 with a salt of its own, in the format that ``mosquitto_passwd`` writes
(https://mosquitto.org/man/mosquitto_passwd-1.html): ``name:$7$iterations$salt$hash``.

``deployment.json`` names what was made. It is written last: what an interrupted command has left is made again, and
what is in it is never made again unasked, wherever its files have been moved to.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from protocols.deployment.broker_configuration import acl_text, configuration_text, rules_of
from protocols.deployment.identities import (
    AUTHORITY,
    CA,
    CA_KEY,
    KEYS,
    STATE,
    Deployment,
    Identity,
    Issued,
    due_for_renewal,
    environment_text,
    environments,
    has_password,
    identities,
    identity_of,
    keys_of_machines,
    password_file,
)
from protocols.deployment.names import RESERVED, Names
from protocols.sealing.keys import (
    CLUSTER_FILE,
    SECRET_BYTES,
    SUFFIX,
    make_keys,
    read_deployment,
    read_files,
    write_files,
)
from protocols.sealing.keys import Deployment as Keys
from protocols.security.certificates import Pair, issue, make_authority, revocation_list
from protocols.security.errors import ExpiredCertificateError, SecurityError
from protocols.security.pem_files import date_text
from protocols.security.private_files import FOLDER, PUBLIC, SECRET, warn_of_open, write_file
from protocols.security.tls import WARNED_SECONDS

PASSWORDS = "passwords"
"""The file's name, in the folder of the broker."""
ITERATIONS = 10_000
"""Passwords are drawn, so guessing them is hopeless anyhow; the broker computes this at each connection."""
SALT_BYTES = 12
DRAWN_BYTES = 18
LONGEST = 200


def draw_password() -> str:
    """Return a new password that no device has trouble with: letters, digits, ``-`` and ``_``."""
    return secrets.token_urlsafe(DRAWN_BYTES)


def check_password(text: str) -> str:
    """Return a password if a device can have it; raises SecurityError."""
    if not 0 < len(text) <= LONGEST or not text.isprintable() or text != text.strip():
        raise SecurityError(
            f"a password is 1 to {LONGEST} characters that can be printed, without spaces at its ends",
            hint="leave the option away: a password is drawn then",
        )
    return text


def hashed(password: str, salt: bytes, iterations: int = ITERATIONS) -> str:
    """Return the hash of a password."""
    found = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, iterations)
    return f"$7${iterations}${base64.b64encode(salt).decode()}${base64.b64encode(found).decode()}"


def is_hash_of(password: str, found: str) -> bool:
    """Return whether a hash is that of a password."""
    try:
        _, kind, iterations, salt, _ = found.split("$")
        if kind != "7":
            return False
        expected = hashed(password, base64.b64decode(salt, validate=True), int(iterations))
    except (ValueError, binascii.Error):
        return False
    return hmac.compare_digest(expected, found)


def password_text(before: str, passwords: Mapping[str, str]) -> str:
    """Return a file with the passwords of devices, by name; what is right in the file as it was stays as it is."""
    known = dict(line.split(":", 1) for line in before.splitlines() if ":" in line)
    lines = []
    for name, password in sorted(passwords.items()):
        kept = known.get(name, "")
        found = kept if is_hash_of(password, kept) else hashed(password, secrets.token_bytes(SALT_BYTES))
        lines.append(f"{name}:{found}\n")
    return "".join(lines)


AUTHORITY_DAYS = 3_650


class DeploymentFolder:
    """A folder with a deployment.

    Parameters
    ----------
    path
        The folder.
    deployment
        What it has, or is to have.

    Raises
    ------
    FjordError
        If no deployment can be of this kind.
    """

    def __init__(self, path: Path, deployment: Deployment) -> None:
        self.path = path
        self.deployment = deployment.check()
        self.changed_keys: list[str] = []
        """Files of machines that the last change has written or removed: keys that seal frames."""

    @classmethod
    def open(cls, path: Path) -> DeploymentFolder:
        """Return a folder that was made before; raises SecurityError."""
        file = path / STATE
        try:
            return cls(path, msgspec.json.decode(file.read_bytes(), type=Deployment))
        except OSError as error:
            raise SecurityError(
                f"there is no deployment in {path}: {error.strerror}", hint="`fjord security init` makes one"
            ) from error
        except (msgspec.DecodeError, ValueError) as error:
            raise SecurityError(f"{file} is damaged: {error}") from error

    @classmethod
    def create(cls, path: Path, wanted: Deployment, now: float) -> DeploymentFolder:
        """Make a deployment, or what is missing of it after an interruption.

        Raises
        ------
        SecurityError
            If the folder has another deployment, or something else, or cannot be written.
        """
        if (path / STATE).exists():
            found = cls.open(path)
            if msgspec.structs.replace(found.deployment, issued=()) != wanted:
                raise SecurityError(
                    f"{path} has another deployment, which is not overwritten",
                    hint="`fjord security add` adds a part to it; or name another folder",
                )
        elif path.is_dir() and any(path.iterdir()):
            raise SecurityError(f"{path} is not empty", hint="name a folder that is not there yet")
        else:
            found = cls(path, wanted)
            path.mkdir(mode=FOLDER, parents=True, exist_ok=True)
        found.complete(now)
        return found

    def complete(self, now: float) -> None:
        """Make what is missing; raises SecurityError."""
        self._store()
        made: list[Issued] = []
        if self.deployment.newest(AUTHORITY) is None:
            lasts = max(AUTHORITY_DAYS, self.deployment.days)
            pair = make_authority(f"Fjord {secrets.token_hex(4)}", now=now, days=lasts)
            self._write_pair(CA, CA_KEY, pair)
            made.append(_issued(AUTHORITY, pair))
        authority = self._authority()
        missing = [each for each in identities(self.deployment) if self.deployment.newest(each.name) is None]
        made += [self._issue(each, authority, now) for each in missing]
        self._store(made)
        self._write_derived(authority, now)

    def hand_out_keys(self) -> list[str]:
        """Let each machine have the keys that seal its frames, and no others; return the files that have changed.

        Proxies that have none get some; those of proxies that are gone count no more.

        Raises
        ------
        FjordError
            If the keys are damaged, or files cannot be written.
        """
        before, kept = self.kept_keys()
        random = secrets.token_bytes(SECRET_BYTES)
        keys = kept or make_keys(random, ())
        proxies = {each.name for each in self.deployment.names.proxies}
        for gone in keys.proxies.keys() - proxies:
            keys = keys.without(gone)
        keys = keys.renewed(random, proxies=proxies - keys.proxies.keys())
        write_files(self.path / KEYS, before, keys)
        files, handed = keys.files(), keys_of_machines(self.deployment)
        there = [*self.path.glob(f"proxies/*/proxy-*{SUFFIX}"), *self.path.glob(f"gateways/*/motes-*{SUFFIX}")]
        changed = sorted({str(each.relative_to(self.path)) for each in there} - handed.keys())
        for file in changed:
            (self.path / file).unlink()
        for file, name in handed.items():
            if self._replace(file, files[name].encode(), mode=SECRET):
                changed.append(file)
        self.changed_keys = changed
        return changed

    def kept_keys(self) -> tuple[dict[str, str], Keys | None]:
        """Return the files with the keys of all parts that seal frames, and these keys; None before any were made.

        Raises
        ------
        FjordError
            If they are not here, or damaged.
        """
        before = read_files(self.path / KEYS)
        if CLUSTER_FILE in before:
            return before, read_deployment(before)
        if (self.path / "cluster" / CLUSTER_FILE).exists():
            raise SecurityError(
                f"cannot read the keys in {self.path / KEYS}: they are not there",
                hint="they are needed to make others; copy the folder back while it is used",
            )
        return before, None

    def change(self, names: Names, now: float) -> list[str]:
        """Give the deployment these names; return those that are new. Raises FjordError."""
        known = set(self.deployment.names.users)
        self.deployment = msgspec.structs.replace(self.deployment, names=names).check()
        self.complete(now)
        return [each for each in names.users if each not in known]

    def renew(self, names: Iterable[str], now: float, days: int | None = None) -> list[str]:
        """Make new certificates and keys in place of old ones, which stay valid until they expire.

        The authority keeps its key: what it has signed stays valid.

        Parameters
        ----------
        names
            Whose; none means those with less than 30 days left.
        now
            Seconds since 1970.
        days
            How long the new ones are valid; None as the first ones.

        Returns
        -------
        list of str
            Whose were renewed.

        Raises
        ------
        SecurityError
            If there is no such name, or files cannot be written.
        """
        chosen = list(names) or list(due_for_renewal(self.deployment, now + WARNED_SECONDS))
        known = {each.name: each for each in identities(self.deployment)}
        with_password = {each.name for each in self.deployment.names.parts if has_password(each)}
        for name in chosen:
            if name != AUTHORITY and name not in known and name not in with_password:
                raise SecurityError(f"{name!r} has no certificate", hint="`fjord security show` lists them")
        if AUTHORITY in chosen:
            old = self._authority()
            pair = make_authority(old.name, now=now, days=AUTHORITY_DAYS if days is None else days, key=old.key)
            write_file(self.path / CA, pair.certificate, mode=PUBLIC, overwrite=True)
            self._store([_issued(AUTHORITY, pair)])
        authority = self._authority()
        for name in with_password.intersection(chosen):
            write_file(self.path / password_file(name), draw_password().encode(), mode=SECRET, overwrite=True)
        made = [self._issue(known[name], authority, now, days) for name in chosen if name in known]
        self._store(made)
        self._write_derived(authority, now)
        return chosen

    def revoke(self, name: str, now: float) -> int:
        """Revoke all certificates of a user of the broker, and take its rules away; return how many were revoked.

        Raises
        ------
        SecurityError
            If there is no such user.
        """
        identity = next((identity_of(each) for each in self.deployment.names.parts if each.name == name), None)
        if identity is None:
            hint = "`fjord security show` lists names"
            if name in RESERVED:
                hint = "clients look into no list of revoked servers: if its key has leaked, make a new deployment"
            elif name == self.deployment.names.cluster:
                hint = "no deployment is without a cluster: `renew --revoke-old` gives it a new key"
            raise SecurityError(f"{name!r} cannot be revoked", hint=hint)
        count = self._revoke_issued(name, now)
        self.deployment = msgspec.structs.replace(self.deployment, names=self.deployment.names.without(name))
        # Stored last: of a command that was interrupted, the same again does the rest.
        self._write_derived(self._authority(), now)
        self._store()
        for file in (identity.certificate, identity.key, password_file(name)):
            (self.path / file).unlink(missing_ok=True)
        return count

    def revoke_old(self, names: Iterable[str], now: float) -> None:
        """Revoke all certificates of these names but the newest."""
        for name in names:
            if name != AUTHORITY:
                self._revoke_issued(name, now, keep=self.deployment.newest(name))
        self._write_derived(self._authority(), now)
        self._store()

    def _revoke_issued(self, name: str, now: float, keep: Issued | None = None) -> int:
        found = [each for each in self.deployment.issued if each.name == name and each.revoked is None and each != keep]
        issued = tuple(
            msgspec.structs.replace(each, revoked=now) if each in found else each for each in self.deployment.issued
        )
        self.deployment = msgspec.structs.replace(self.deployment, issued=issued)
        return len(found)

    def _issue(self, identity: Identity, authority: Pair, now: float, days: int | None = None) -> Issued:
        above = self.deployment.newest(AUTHORITY)
        if above is not None and above.expires < now:
            raise ExpiredCertificateError(
                str(self.path / CA),
                f"the authority expired on {date_text(above.expires)}",
                hint=f"renew it first: `fjord security renew FOLDER {AUTHORITY}`",
            )
        lasts = self.deployment.days if days is None else days
        pair = issue(authority, identity.name, identity.purpose, hosts=identity.hosts, now=now, days=lasts)
        self._write_pair(identity.certificate, identity.key, pair)
        return _issued(identity.name, pair)

    def _write_pair(self, certificate: str, key: str, pair: Pair) -> None:
        write_file(self.path / key, pair.key, mode=SECRET, overwrite=True)
        write_file(self.path / certificate, pair.certificate, mode=PUBLIC, overwrite=True)

    def _write_derived(self, authority: Pair, now: float) -> None:
        """Write what follows from names and certificates; the configuration and environments only once."""
        deployment = self.deployment
        for folder in {each.folder for each in identities(deployment)}:
            self._replace(f"{folder}/ca.crt", authority.certificate)
        revoked = {int(each.serial, 16): each.revoked for each in deployment.issued if each.revoked is not None}
        listed = revocation_list(authority, revoked, now=now)
        write_file(self.path / "broker" / "revoked.crl", listed, mode=PUBLIC, overwrite=True)
        self._replace("broker/acl", acl_text(rules_of(deployment.names)).encode(), mode=SECRET)
        self._write_passwords()
        self.hand_out_keys()
        once = {"broker/mosquitto.conf": configuration_text(deployment.broker)}
        for folder, variables in environments(deployment, str(self.path.absolute())).items():
            once[f"{folder}/environment"] = environment_text(variables)
        for file, text in once.items():
            if not (self.path / file).exists():
                write_file(self.path / file, text.encode(), mode=PUBLIC)

    def _write_passwords(self) -> None:
        """Draw the passwords that devices lack, and let the broker have hashes of all."""
        found = {}
        for part in self.deployment.names.parts:
            if has_password(part):
                file = self.path / password_file(part.name)
                if not file.exists():
                    write_file(file, draw_password().encode(), mode=SECRET)
                found[part.name] = file.read_text(encoding="utf-8").rstrip("\n")
        if self.deployment.broker.password_port is not None:
            kept = self.path / "broker" / PASSWORDS
            before = kept.read_text(encoding="utf-8") if kept.exists() else ""
            self._replace(f"broker/{PASSWORDS}", password_text(before, found).encode(), mode=SECRET)

    def set_password(self, name: str, password: str) -> None:
        """Give a device a password of its own, before or after it is added; raises SecurityError."""
        write_file(self.path / password_file(name), check_password(password).encode(), mode=SECRET, overwrite=True)

    def listen_for_passwords(self, port: int, listen: str, now: float) -> bool:
        """Let the broker listen for devices that show a password; return whether its configuration has that now.

        A configuration that has been edited since it was made is left as it is.
        """
        before = configuration_text(self.deployment.broker)
        broker = msgspec.structs.replace(self.deployment.broker, password_port=port, password_listen=listen)
        self.deployment = msgspec.structs.replace(self.deployment, broker=broker).check()
        file = self.path / "broker" / "mosquitto.conf"
        is_ours = not file.exists() or file.read_text(encoding="utf-8") == before
        if is_ours:
            self._replace("broker/mosquitto.conf", configuration_text(broker).encode())
        self.complete(now)
        return is_ours

    def _replace(self, file: str, content: bytes, *, mode: int = PUBLIC) -> bool:
        """Write a file unless it has this content; return whether it had another."""
        path = self.path / file
        if path.exists() and path.read_bytes() == content:
            return False
        write_file(path, content, mode=mode, overwrite=True)
        return True

    def _authority(self) -> Pair:
        try:
            warn_of_open(self.path / CA_KEY)
            return Pair((self.path / CA).read_bytes(), (self.path / CA_KEY).read_bytes())
        except OSError as error:
            raise SecurityError(
                f"cannot read the authority in {self.path / 'authority'}: {error.strerror}",
                hint="it is needed to sign; copy it back while it is used",
            ) from error

    def _store(self, made: Iterable[Issued] = ()) -> None:
        self.deployment = msgspec.structs.replace(self.deployment, issued=(*self.deployment.issued, *made))
        text = msgspec.json.format(msgspec.json.encode(self.deployment))
        write_file(self.path / STATE, text + b"\n", mode=PUBLIC, overwrite=True)


def _issued(name: str, pair: Pair) -> Issued:
    return Issued(name, f"{pair.serial:x}", pair.expires)
