"""Certificates for signing keys, as carried in SenderCert.  [MS-MQMQ] 2.2.20.6

This module does not judge who owns or signed a certificate: the directory, or its substitute, knows the users'
certificates by their bytes (3.1.5.8.3).
"""

from __future__ import annotations

import datetime
import warnings
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.utils import CryptographyDeprecationWarning
from cryptography.x509.oid import NameOID

from mqproto.base.errors import UsageError
from mqproto.security.keys import KeyPair, PublicKey
from mqproto.security.refusals import bad_signature

_DAY: Final = datetime.timedelta(days=1)
_PEM: Final = b"-----BEGIN CERTIFICATE-----"
_USAGES: Final = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
    "encipher_only",
    "decipher_only",
)


class Certificate:
    """An X.509 certificate with an RSA key. Certificates with the same bytes are equal.

    der: its bytes, as a message carries them.
    subject, issuer: its owner and its signer, in the notation of RFC 4514.
    since_s, until_s: the start and end of its validity, in seconds, UTC.
    """

    def __init__(self, certificate: x509.Certificate) -> None:
        key = certificate.public_key()
        if not isinstance(key, rsa.RSAPublicKey):
            raise UsageError(
                "the certificate's key is not of RSA, which is all that MSMQ knows: bring another"
            )
        self.key = PublicKey(key)
        self.der = certificate.public_bytes(serialization.Encoding.DER)
        self.subject = certificate.subject.rfc4514_string()
        self.issuer = certificate.issuer.rfc4514_string()
        self.since_s = int(certificate.not_valid_before_utc.timestamp())
        self.until_s = int(certificate.not_valid_after_utc.timestamp())

    @classmethod
    def from_bytes(cls, data: bytes) -> Certificate:
        """Return the first certificate of a PEM text, or the certificate in DER bytes.

        Raises:
            UsageError: there is no usable certificate.
        """
        try:
            load = x509.load_pem_x509_certificate if _PEM in data else x509.load_der_x509_certificate
            with warnings.catch_warnings():
                # A deprecation in the library does not belong in a node's log.
                warnings.simplefilter("ignore", CryptographyDeprecationWarning)
                return cls(load(data))
        except UsageError:
            raise
        except Exception:  # The library may raise anything about a stranger's bytes.
            raise UsageError("no certificate: bring PEM with -----BEGIN CERTIFICATE-----, or DER") from None

    def is_issued_by(self, issuer: Certificate) -> bool:
        """Return whether this certificate was signed with the key of `issuer`, which may be this certificate."""
        own, other = (x509.load_der_x509_certificate(each.der) for each in (self, issuer))
        try:
            own.verify_directly_issued_by(other)
        except (InvalidSignature, ValueError, TypeError, UnsupportedAlgorithm):
            return False
        return True

    def pem(self) -> bytes:
        return x509.load_der_x509_certificate(self.der).public_bytes(serialization.Encoding.PEM)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Certificate) and self.der == other.der

    def __hash__(self) -> int:
        return hash(self.der)

    def __repr__(self) -> str:
        return f"<certificate of {self.subject}, {self.key.fingerprint}>"


def self_signed(own: KeyPair, name: str, since_s: int, days: int, number: int | None = None) -> Certificate:
    """Return a certificate for the public key, signed with the key itself.

    Args:
        name: the owner's name, of 1 to 64 characters.
        since_s: the second, UTC, from which the certificate is valid.
        number: the serial number. Without one, the certificate is different each time.

    Raises:
        UsageError: X.509 does not allow this name or this number of days.
    """
    try:
        since = datetime.datetime.fromtimestamp(since_s, datetime.UTC)
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        until = since + days * _DAY
    except (ValueError, OverflowError):
        raise UsageError(
            f"a certificate for {name!r} of {days} days: name it in 1 to 64 characters"
        ) from None
    usage = dict.fromkeys(_USAGES, False) | {"digital_signature": True, "content_commitment": True}
    return Certificate(
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(own.rsa.public_key())
        .serial_number(x509.random_serial_number() if number is None else number)
        .not_valid_before(since)
        .not_valid_after(until)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.KeyUsage(**usage), critical=True)
        .sign(own.rsa, hashes.SHA256())
    )


def request_for(own: KeyPair, name: str) -> bytes:
    """Return a request to an authority for a certificate for the key, as PKCS #10 in PEM.

    Args:
        name: the owner's name, of 1 to 64 characters.

    Raises:
        UsageError: X.509 does not allow this name.
    """
    try:
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    except ValueError:
        raise UsageError(f"a certificate for {name!r}: name it in 1 to 64 characters") from None
    request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(own.rsa, hashes.SHA256())
    return request.public_bytes(serialization.Encoding.PEM)


def certificate_in(der: bytes) -> Certificate:
    """Return the certificate in a message's SenderCert.  [MS-MQMQ] 2.2.20.6

    Raises:
        ProtectionError: it is not a certificate, or its key cannot verify anything here.
    """
    try:
        return Certificate.from_bytes(der)
    except UsageError:
        raise bad_signature(
            "SenderCert is not an X.509 certificate with a key of RSA that can be used"
        ) from None
