"""Tokens of the HTTP API, and their entries in a file, which have only their digests."""

from __future__ import annotations

import hashlib
import re
import secrets
import tomllib
from dataclasses import dataclass
from typing import Annotated, Final

import msgspec

from cluster.errors import ClusterError
from cluster.service.access.roles import Role

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
