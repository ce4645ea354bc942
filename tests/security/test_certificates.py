"""Certificates: what a self-signed one contains, and bytes that are not a certificate."""

from __future__ import annotations

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from mqproto.base.errors import UsageError
from mqproto.security import Certificate, ProtectionError, certificate_in, self_signed
from tests.security.keys import own_key

SINCE_S = 1_700_000_000


def test_a_self_signed_certificate_is_its_key_s_own_and_for_signatures() -> None:
    made = self_signed(own_key(), "shop", SINCE_S, 30)
    assert (made.subject, made.since_s, made.until_s) == ("CN=shop", SINCE_S, SINCE_S + 30 * 86_400)
    assert made.key == own_key().public
    assert Certificate.from_bytes(made.pem()) == Certificate.from_bytes(made.der) == made
    shown = x509.load_der_x509_certificate(made.der)
    shown.verify_directly_issued_by(shown)
    assert shown.extensions.get_extension_for_class(x509.KeyUsage).value.digital_signature
    assert not shown.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


@pytest.mark.parametrize(("name", "days"), [("", 30), ("n" * 65, 30), ("shop", 10**9)])
def test_what_x509_cannot_say_is_misuse(name: str, days: int) -> None:
    with pytest.raises(UsageError, match="name it in 1 to 64 characters"):
        self_signed(own_key(), name, SINCE_S, days)


@pytest.mark.spec("[MS-MQMQ] 2.2.20.6")
def test_a_certificate_that_is_none_is_a_bad_signature() -> None:
    elliptic = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([])
    shown = x509.load_der_x509_certificate(self_signed(own_key(), "shop", SINCE_S, 30).der)
    other = (
        x509.CertificateBuilder(name, name, elliptic.public_key(), 1)
        .not_valid_before(shown.not_valid_before_utc)
        .not_valid_after(shown.not_valid_after_utc)
        .sign(elliptic, hashes.SHA256())
    )
    for der in (b"", b"\x30\x03\x02\x01\x01", bytes(500), other.public_bytes(serialization.Encoding.DER)):
        with pytest.raises(ProtectionError, match=r"BAD_SIGNATURE: SenderCert is not an X\.509 certificate"):
            certificate_in(der)
    with pytest.raises(UsageError, match="not of RSA"):
        Certificate.from_bytes(other.public_bytes(serialization.Encoding.PEM))
    with pytest.raises(UsageError, match="no certificate: bring PEM"):
        Certificate.from_bytes(own_key().pem())
