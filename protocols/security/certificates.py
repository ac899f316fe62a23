"""A small authority: keys on the curve P-256, certificates of servers and clients, and the list of revoked ones.

A client's certificate has the name of its part as common name, which the broker takes for the user's.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import Enum

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from protocols.security.errors import SecurityError

MARGIN = timedelta(hours=1)
"""Certificates begin so much earlier: clocks of machines differ."""
MOST_DAYS = 36_500
LONGEST_HOST = 253


class Purpose(Enum):
    """What a certificate is for."""

    SERVER = ExtendedKeyUsageOID.SERVER_AUTH
    CLIENT = ExtendedKeyUsageOID.CLIENT_AUTH


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, both in PEM. The key never appears in a representation."""

    certificate: bytes
    key: bytes = field(repr=False)

    @property
    def serial(self) -> int:
        """Number of the certificate, by which it can be revoked."""
        return x509.load_pem_x509_certificate(self.certificate).serial_number

    @property
    def expires(self) -> float:
        """When the certificate expires, in seconds since 1970."""
        return x509.load_pem_x509_certificate(self.certificate).not_valid_after_utc.timestamp()

    @property
    def name(self) -> str:
        """Common name of the certificate."""
        (found,) = x509.load_pem_x509_certificate(self.certificate).subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        return str(found.value)


def make_authority(name: str, *, now: float, days: int, key: bytes | None = None) -> Pair:
    """Return an authority, which signs itself.

    Parameters
    ----------
    name
        Its common name.
    now
        Seconds since 1970.
    days
        How long it is valid.
    key
        Of an authority that is renewed: what it has signed stays valid. None for a new one.
    """
    private = _new_key() if key is None else _loaded(key)
    public = private.public_key()
    builder = (
        _builder(_named(name), _named(name), public, now, days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )
    return _pair(builder.sign(private, hashes.SHA256()), private)


def issue(authority: Pair, name: str, purpose: Purpose, *, hosts: Sequence[str] = (), now: float, days: int) -> Pair:
    """Return a certificate with a key of its own. It ends with its authority at the latest.

    Parameters
    ----------
    authority
        Signs it.
    name
        Its common name.
    purpose
        Whether a server shows it, or a client.
    hosts
        Names and addresses of a server.
    now
        Seconds since 1970.
    days
        How long it is valid.

    Raises
    ------
    SecurityError
        If a host is neither a name nor an address.
    """
    above, signing = x509.load_pem_x509_certificate(authority.certificate), _loaded(authority.key)
    left_days = (above.not_valid_after_utc - datetime.fromtimestamp(now, UTC)) / timedelta(days=1)
    private = _new_key()
    builder = (
        _builder(above.subject, _named(name), private.public_key(), now, min(days, left_days))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([purpose.value]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(private.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key()), critical=False)
    )
    if hosts:
        names = [_general_name(check_host(each)) for each in hosts]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return _pair(builder.sign(signing, hashes.SHA256()), private)


def revocation_list(authority: Pair, revoked: Mapping[int, float], *, now: float) -> bytes:
    """Return the list of revoked certificates, in PEM.

    It is valid as long as the authority: a broker with a list that has expired refuses all clients.

    Parameters
    ----------
    authority
        Signs it.
    revoked
        Numbers of certificates, and since when, in seconds since 1970.
    now
        Seconds since 1970.
    """
    above, signing = x509.load_pem_x509_certificate(authority.certificate), _loaded(authority.key)
    begins = datetime.fromtimestamp(now, UTC) - MARGIN
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(above.subject)
        .last_update(begins)
        .next_update(max(above.not_valid_after_utc, begins + timedelta(seconds=1)))
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key()), critical=False)
        .add_extension(x509.CRLNumber(int(now * 1_000)), critical=False)
    )
    for serial, since in sorted(revoked.items()):
        entry = x509.RevokedCertificateBuilder().serial_number(serial)
        builder = builder.add_revoked_certificate(entry.revocation_date(datetime.fromtimestamp(since, UTC)).build())
    return builder.sign(signing, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def check_host(host: str) -> str:
    """Return the name or address of a server if it may be in a certificate, else raise SecurityError.

    Examples
    --------
    >>> check_host("gateway.local"), check_host("::1")
    ('gateway.local', '::1')
    """
    labels = host.removesuffix(".").split(".")
    plain = all(
        each and each.isascii() and each.strip("-") == each and each.replace("-", "").isalnum() for each in labels
    )
    if not (_is_address(host) or (plain and len(host) <= LONGEST_HOST)):
        raise SecurityError(
            f"{host[:80]!r} is not the name or the address of a machine", hint="for instance gateway.local or 10.0.0.7"
        )
    return host


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _general_name(host: str) -> x509.GeneralName:
    return x509.IPAddress(ipaddress.ip_address(host)) if _is_address(host) else x509.DNSName(host)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    issuer: x509.Name, subject: x509.Name, public: ec.EllipticCurvePublicKey, now: float, days: float
) -> x509.CertificateBuilder:
    begins = datetime.fromtimestamp(now, UTC)
    return (
        x509.CertificateBuilder()
        .issuer_name(issuer)
        .subject_name(subject)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(begins, begins + timedelta(days=days)) - MARGIN)
        .not_valid_after(begins + timedelta(days=days))
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _loaded(key: bytes) -> ec.EllipticCurvePrivateKey:
    loaded = serialization.load_pem_private_key(key, password=None)
    if not isinstance(loaded, ec.EllipticCurvePrivateKey):
        raise SecurityError("the key of the authority is not one of an elliptic curve")
    return loaded


def _pair(certificate: x509.Certificate, private: ec.EllipticCurvePrivateKey) -> Pair:
    return Pair(
        certificate.public_bytes(serialization.Encoding.PEM),
        private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ),
    )
