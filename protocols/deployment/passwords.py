"""Passwords of devices that cannot show a certificate, as Mosquitto's ``password_file`` has them.

A line has a name and a PBKDF2 hash of SHA-512 with a salt of its own, in the format that ``mosquitto_passwd`` writes
(https://mosquitto.org/man/mosquitto_passwd-1.html): ``name:$7$iterations$salt$hash``.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Mapping

from protocols.security.errors import SecurityError

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
