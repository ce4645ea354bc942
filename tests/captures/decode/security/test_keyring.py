"""What the keys at hand prove, in words; where keys are read from; and what a stranger's bytes can do."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from mqproto.base.errors import UsageError
from mqproto.captures.decode.security.keyring import NOTHING, Evidence, read_keys
from mqproto.security import Certificate, KeyPair, Provider, SignatureKind, self_signed, session_keys_in
from mqproto.wire import (
    UserMessage,
    decode_message,
    encode_packet,
    inspect_packet,
    public_key_blob,
    simple_blob,
)
from mqproto.wire.layouts.keyblobs import RC4, RSA_SIGN
from tests.captures.decode.security.protections import with_security
from tests.captures.decode.security.sent import (
    BODY,
    ENHANCED,
    alice,
    other_key,
    over,
    plain,
    ring,
    sealed_for,
    signed_by,
)
from tests.examples import SENT_S, a_full_message, poked
from tests.security.keys import CIPHERS, own_key


def issued(subject: str, own: KeyPair, issuer: Certificate, by: KeyPair) -> Certificate:
    """Return a certificate that was issued by a certification authority, which has the certificate `issuer`."""
    itself = x509.load_der_x509_certificate(self_signed(own, subject, SENT_S, 10).der)
    authority = x509.load_der_x509_certificate(issuer.der)
    made = (
        x509.CertificateBuilder()
        .subject_name(itself.subject)
        .issuer_name(authority.subject)
        .public_key(own.public.rsa)
        .serial_number(7)
        .not_valid_before(itself.not_valid_before_utc)
        .not_valid_after(itself.not_valid_after_utc)
        .sign(by.rsa, hashes.SHA256())
    )
    return Certificate(made)


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.3")
@pytest.mark.parametrize(("provider", "algorithm"), CIPHERS)
def test_a_private_key_opens_what_was_sealed_for_it(provider: Provider, algorithm: int) -> None:
    found = ring(other_key(), own_key(512)).evidence(over(sealed_for(plain(), provider, algorithm)))
    assert (found.plain, found.verified, found.signature) == (BODY, None, None)
    unproved = "; not proved, as RC4 has no padding that could be wrong" if algorithm == RC4 else ""
    assert found.decryption == f"opened with 1.pem{unproved}"


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.3")
@pytest.mark.parametrize("kind", SignatureKind)
def test_a_signature_is_checked_by_the_certificate_that_the_message_carries(kind: SignatureKind) -> None:
    found = ring(own_key(512)).evidence(over(signed_by(plain(), kind=kind)))
    name = f"MSMQ {kind.name[-2]}.0"
    assert found == Evidence(True, None, f"holds, {name}, by CN=alice (self-signed, not in --keys)")


def test_what_is_signed_and_encrypted_is_opened_first() -> None:
    message = over(sealed_for(signed_by(plain()), ENHANCED, RC4))
    found = ring(own_key(512), certificates=(alice(),)).evidence(message)
    assert found == Evidence(True, "CN=alice", "holds, MSMQ 2.0, by CN=alice", "opened with 0.pem", BODY)
    closed = ring(certificates=(alice(),)).evidence(message)
    assert closed == Evidence(
        signature="not checked: it is over the body in clear, and that is encrypted",
        decryption="not opened: it is for a key of 512 bits, and none is at hand",
    )
    assert ring(other_key(512)).evidence(over(sealed_for(plain()))).decryption in (
        "not opened: no key at hand opens its session key",
        "not opened: its body is not what a key at hand opens: the padding is wrong",
    )


def test_who_signed_is_said_by_what_is_at_hand() -> None:
    authority = self_signed(other_key(), "authority", SENT_S, 10)
    own = own_key()
    bob, mallory = (
        issued("bob", own, authority, other_key()),
        self_signed(other_key(), "a\x1b[2J", SENT_S, 10),
    )
    late = self_signed(own, "late", SENT_S - 90_000, 1)

    def said(
        message: UserMessage, *pairs: KeyPair, at_hand: tuple[Certificate, ...] = ()
    ) -> tuple[object, ...]:
        return ring(*pairs, certificates=at_hand).evidence(over(message))[:3]

    by_bob = signed_by(plain(), bob)
    assert said(by_bob, at_hand=(bob,)) == (True, "CN=bob", "holds, MSMQ 2.0, by CN=bob")
    assert said(by_bob, at_hand=(authority,)) == (
        True,
        "CN=bob",
        "holds, MSMQ 2.0, by CN=bob (issued by CN=authority)",
    )
    assert said(by_bob, other_key(512)) == (
        True,
        None,
        "holds, MSMQ 2.0, by CN=bob (issued by CN=authority, neither in --keys)",
    )
    assert said(by_bob, own) == (True, "0.pem", "holds, MSMQ 2.0, by CN=bob, the key in 0.pem")
    assert said(signed_by(plain(), late), at_hand=(late,))[2] == (
        "holds, MSMQ 2.0, by CN=late, whose certificate was not valid when it was sent"
    )
    words = str(said(signed_by(plain(), mallory, own=other_key()), own)[2])
    assert words == r"holds, MSMQ 2.0, by CN=a\x1b[2J (self-signed, not in --keys)"


def test_a_message_without_a_certificate_is_checked_with_the_keys_at_hand() -> None:
    message = signed_by(plain())
    assert message.security is not None
    message = replace(message, security=replace(message.security, sender_cert=b""))
    assert ring(other_key(), own_key()).evidence(message) == Evidence(
        True, "1.pem", "holds, MSMQ 2.0, by the key in 1.pem"
    )
    assert ring(certificates=(alice(),)).evidence(message) == Evidence(
        True, "CN=alice", "holds, MSMQ 2.0, by CN=alice, though it carries no certificate"
    )
    assert ring(other_key()).evidence(message) == Evidence(
        signature="not checked: it carries no certificate, and is not by a key at hand"
    )
    assert ring().evidence(message) == Evidence(
        signature="not checked: it carries no certificate, and no key is at hand"
    )


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (with_security(signature=b"s", hash_algorithm=0x8001), "MD2 is broken: sign with SHA-512"),
        (with_security(signature=b"s", hash_algorithm=7), "0x7 is not a HashAlgorithm"),
        (
            with_security(signature=b"s", sender_cert=b"none"),
            "SenderCert is not an X.509 certificate with a key of RSA that can be used",
        ),
    ],
)
def test_what_cannot_be_checked_is_not_said_to_be_wrong(message: UserMessage, why: str) -> None:
    assert ring(own_key()).evidence(message) == Evidence(signature=f"not checked: {why}")


def test_of_what_is_cut_or_neither_signed_nor_encrypted_nothing_is_proved() -> None:
    keys = ring(own_key(512))
    assert keys.evidence(plain()) == keys.evidence(with_security()) == NOTHING
    why = "the capture lacks 9 bytes of it"
    assert keys.evidence(sealed_for(signed_by(plain())), 9) == Evidence(
        signature=f"not checked: {why}", decryption=f"not opened: {why}"
    )


def test_of_two_keys_that_may_have_opened_it_the_signature_tells() -> None:
    """If two keys may have opened a message, the signature tells which one did.

    A wrong key sometimes gives a session key of the right length, and RC4 has no padding.
    """
    right, wrong = own_key(512), other_key(512)
    for _ in range(5_000):
        message = over(sealed_for(plain(), ENHANCED, RC4))
        assert message.security is not None
        blob = simple_blob.decode(message.security.encryption_key)
        if len(session_keys_in(blob, [wrong, right], ENHANCED)) == 2:
            break
    else:
        pytest.skip("this OpenSSL tells what is encrypted in a wrong way")
    security = message.security
    found = ring(wrong, right).evidence(message)
    assert found.plain != BODY
    assert str(found.decryption).startswith("opened with 0.pem; not proved")

    signed = signed_by(plain())
    assert signed.security is not None
    both = replace(
        message,
        security=replace(
            security, signature=signed.security.signature, sender_cert=signed.security.sender_cert
        ),
    )
    proved = ring(wrong, right).evidence(both)
    assert (proved.verified, proved.plain, proved.decryption) == (True, BODY, "opened with 1.pem")


def test_whatever_bit_is_wrong_nothing_is_proved_that_is_not_and_nothing_fails() -> None:
    packet = encode_packet(sealed_for(signed_by(plain())))
    keys = ring(own_key(512), certificates=(alice(),))
    good = keys.evidence(decode_message(packet))
    covered = {"properties.message_body", "properties.label", "security.signature", "properties.body_type"}
    count = 0
    for field in inspect_packet(packet).fields:
        for place in range(0, field.size, max(field.size // 24, 1)):
            raw = bytearray(field.raw)
            raw[place] ^= 1 << place % 8
            try:
                message = decode_message(poked(packet, field.name, bytes(raw)))
            except ValueError:
                continue
            found = keys.evidence(message)
            count += 1
            if field.name in covered or field.name.startswith("security.encryption_key.enc"):
                assert found.verified is not True, (field.name, place)
            if found.verified and found.plain is not None:
                assert (found.plain, found.signer) in ((BODY, "CN=alice"), (BODY, None))
    assert good.verified
    assert count > 100


def test_keys_are_read_from_what_mqproto_keys_and_windows_write(tmp_path: Path) -> None:
    folder = tmp_path / "qm2.keys"
    folder.mkdir()
    (folder / "aes.pem").write_bytes(own_key(512).pem())
    (folder / "signing.pem").write_bytes(own_key().pem() + alice().pem())
    (folder / "notes.txt").write_text("of the operator\n")
    (folder / "empty").touch()
    both, der = sealed_for(signed_by(plain())), x509.load_der_x509_certificate(alice().der)
    known = Evidence(True, "CN=alice", "holds, MSMQ 2.0, by CN=alice", f"opened with {folder}/aes.pem", BODY)
    assert read_keys((str(folder),)).evidence(both) == known

    files = {
        "blob": own_key(512).blob(),
        "bundle.pem": self_signed(other_key(), "authority", SENT_S, 10).pem() + alice().pem(),
        "alice.cer": der.public_bytes(serialization.Encoding.DER),
        "public.hex": public_key_blob.encode(own_key().public.blob(RSA_SIGN)).hex().encode() + b"\n",
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    for name, signer in (("bundle.pem", "CN=alice"), ("alice.cer", "CN=alice"), ("public.hex", "public.hex")):
        found = read_keys((str(tmp_path / "blob"), str(tmp_path / name))).evidence(both)
        assert str(found.signer).endswith(signer)
        assert found.decryption == f"opened with {tmp_path}/blob"


def test_files_without_a_key_are_refused_by_name(tmp_path: Path) -> None:
    empty, text, locked = tmp_path / "empty", tmp_path / "text", tmp_path / "qm.keys"
    empty.mkdir()
    locked.mkdir()
    text.write_text("no key")
    encrypted = own_key().rsa.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"word"),
    )
    (locked / "aes.pem").write_bytes(encrypted)
    for path, why in (
        (empty, f"{empty}: no keys or certificates are in it: name the folder NODE.keys, or files"),
        (
            text,
            f"{text}: no public key of RSA: bring a PUBLICKEYBLOB, or PEM of a public key or a certificate",
        ),
        (locked, f"{locked}/aes.pem: the key is encrypted: decrypt it first, openssl pkey -in FILE -out KEY"),
        (tmp_path / "gone", f"{tmp_path}/gone: No such file or directory: name keys that you can read"),
    ):
        with pytest.raises(UsageError, match=re.escape(why)):
            read_keys((str(path),))


def test_a_list_of_destinations_is_verified_by_the_signature_beside_it() -> None:
    message = over(signed_by(replace(a_full_message(), security=None)))
    assert ring(certificates=(alice(),)).evidence(message)[:3] == (
        True,
        "CN=alice",
        "holds, MSMQ 3.0, by CN=alice",
    )
