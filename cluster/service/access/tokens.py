"""Tokens of the HTTP API, of which a file has only digests; it is read again when it changes."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import stat
import tempfile
import time
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import msgspec

from cluster.errors import ClusterError
from cluster.service.access.roles import Role
from cluster.service.client.api_token import VARIABLE
from protocols.event_log import get_logger

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}")
MOST_TOKENS: Final = 1000
TOKEN_BYTES: Final = 32


class TokenFileError(ClusterError):
    """A file of tokens that cannot be used. The message quotes nothing of it."""


class AccessToken(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An entry of the file.

    Parameters
    ----------
    name
        The person or program that uses it.
    role
        What it allows.
    sha256
        The SHA-256 digest of the token, in hexadecimal digits.
    """

    name: Annotated[str, msgspec.Meta(pattern=f"^{NAME.pattern}$")]
    role: Role
    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]

    @property
    def toml(self) -> str:
        """The entry as it stands in a file."""
        return f'[[token]]\nname = "{self.name}"\nrole = "{self.role}"\nsha256 = "{self.sha256}"\n'


class _Entries(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    token: Annotated[tuple[AccessToken, ...], msgspec.Meta(max_length=MOST_TOKENS)] = ()


@dataclass(frozen=True, slots=True)
class Caller:
    """Whose a request is.

    Parameters
    ----------
    name
        Of the token.
    role
        What it allows.
    """

    name: str
    role: Role


def digest_of(token: str) -> str:
    """Return the digest of a token."""
    return hashlib.sha256(token.encode()).hexdigest()


def new_token(name: str, role: Role) -> tuple[str, AccessToken]:
    """Return a token drawn at random, and its entry.

    Raises
    ------
    TokenFileError
        If no token can have the name.
    """
    if not NAME.fullmatch(name):
        raise TokenFileError(
            f"{name[:100]!r} is not a name of a token", hint="use letters, digits, and _ . @ - after the first"
        )
    token = secrets.token_urlsafe(TOKEN_BYTES)
    return token, AccessToken(name, role, digest_of(token))


def parse_tokens(text: str) -> tuple[AccessToken, ...]:
    """Return the entries of a file.

    Raises
    ------
    TokenFileError
        If it is no TOML, has something else than tokens, or two of one name or digest.
    """
    try:
        found = msgspec.convert(tomllib.loads(text), _Entries).token
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"\(at [^)]*\)$", str(error))
        raise TokenFileError(f"it is not TOML {place[0] if place else ''}".rstrip()) from None
    except (msgspec.ValidationError, RecursionError) as error:
        place = re.search(r" - at `[^`]*`$", str(error))
        raise TokenFileError(
            f"an entry is not a token{place[0] if place else ''}",
            hint='an entry is [[token]] with name, role = "read", "query" or "admin", and sha256: `fjord token create`',
        ) from None
    for what in ("name", "sha256"):
        values = [getattr(each, what) for each in found]
        if len(set(values)) < len(values):
            raise TokenFileError(f"two tokens have the same {what}")
    return found


log = get_logger(__name__)

MOST_BYTES: Final = 1024 * 1024
LOOK_SECONDS: Final = 1.0
"""How soon a change of the file counts."""
NEW_FILE_MODE: Final = 0o644


def read_tokens(path: Path) -> tuple[AccessToken, ...]:
    """Return the entries of a file.

    Raises
    ------
    TokenFileError
        If it cannot be read, others may write to it, or :func:`parse_tokens` rejects it.
    """
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            content = file.read(MOST_BYTES + 1)
        text = content.decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise TokenFileError(f"the tokens {path} cannot be read: {reason}") from None
    if mode & stat.S_IWOTH:
        raise TokenFileError(f"all users may write to the tokens {path}", hint=f"chmod 644 {path}")
    if mode & stat.S_IWGRP:
        log.warning("a group may write to the file of tokens", file=str(path))
    if len(content) > MOST_BYTES:
        raise TokenFileError(f"the tokens {path} have more than {MOST_BYTES:,} bytes")
    try:
        return parse_tokens(text)
    except TokenFileError as error:
        raise TokenFileError(f"the tokens {path} cannot be used: {error.message}", hint=error.hint) from None


class Tokens:
    """The tokens that a cluster accepts.

    Parameters
    ----------
    admin
        A token of the role admin, from the environment; None for none.
    file
        A file of further tokens; None for none. A file without entries lets no request in.
    clock
        Seconds of a clock that never goes back.

    Raises
    ------
    TokenFileError
        If the file cannot be used.
    """

    def __init__(
        self, admin: str | None = None, file: Path | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._own = (AccessToken(VARIABLE, Role.ADMIN, digest_of(admin)),) if admin else ()
        self._file = file
        self._clock = clock
        self._looked = clock()
        self._state = None if file is None else _state_of(file)
        self._read = () if file is None else read_tokens(file)
        self.trouble: str | None = None
        """Why the file's last change is not followed; None if it is."""

    @property
    def required(self) -> bool:
        """Whether a request needs a token; if not, every request may do everything."""
        return bool(self._own) or self._file is not None

    def caller(self, authorization: str | None) -> Caller | None:
        """Return whose a request is, by its header `Authorization`; None if no token is known by it.

        All digests are compared in full, so that the time does not reveal where they differ.
        """
        if not self.required:
            return Caller("", Role.ADMIN)
        self._look()
        scheme, _, token = (authorization or "").partition(" ")
        digest = digest_of(token)
        found = [each for each in (*self._own, *self._read) if secrets.compare_digest(each.sha256, digest)]
        return Caller(found[0].name, found[0].role) if found and scheme.casefold() == "bearer" else None

    def as_json(self) -> dict[str, object]:
        """Return how many tokens there are, and why the file is not followed, for the status."""
        return {"required": self.required, "known": len(self._own) + len(self._read), "trouble": self.trouble}

    def _look(self) -> None:
        """Read the file again if it has changed; keep the tokens of before if it cannot be used."""
        if self._file is None or self._clock() - self._looked < LOOK_SECONDS:
            return
        self._looked = self._clock()
        state = _state_of(self._file)
        if state == self._state:
            return
        self._state = state
        try:
            self._read = read_tokens(self._file)
        except TokenFileError as error:
            self.trouble = error.message
            log.warning("the file of tokens has changed and is not followed", reason=error.message)
        else:
            self.trouble = None
            log.info("tokens read again", tokens=len(self._read))


def _state_of(path: Path) -> tuple[int, ...] | None:
    """Return what changes whenever a file or its permissions do; None if there is no file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def add_token(path: Path, entry: AccessToken) -> None:
    """Add an entry to a file, which is made if it does not exist; comments in it stay.

    Raises
    ------
    TokenFileError
        If the file cannot be used or written, or has a token of this name.
    """
    place = path.resolve()
    mode, text = NEW_FILE_MODE, ""
    try:
        if place.exists():
            if any(each.name == entry.name for each in read_tokens(place)):
                raise TokenFileError(
                    f"{path} has a token {entry.name!r} already", hint="choose another name, or delete its entry"
                )
            mode, text = stat.S_IMODE(place.stat().st_mode), place.read_text("utf-8").rstrip() + "\n\n"
        handle, name = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name}.")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            os.fchmod(handle, mode)
            file.write(text.lstrip() + entry.toml)
            file.flush()
            os.fsync(handle)
        Path(name).replace(place)
    except OSError as error:
        raise TokenFileError(f"the tokens {path} cannot be written: {error.strerror}") from None
