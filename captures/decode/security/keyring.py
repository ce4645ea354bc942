"""Keys for captures: they decrypt messages and verify signatures.

Keys are read from files and never leave this module: output names only their files. Only callers of `read_keys`
need the extra `mqproto[security]`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from mqproto.base.errors import UsageError
from mqproto.captures.decode.findings import Finding, Severity
from mqproto.captures.decode.names import printable
from mqproto.captures.decode.security.words import protection_of
from mqproto.wire import UserMessage

if TYPE_CHECKING:
    from mqproto.security import Certificate, KeyPair, Opening, Proof, PublicKey

LIMIT_BYTES: Final = 2**20
"""The largest number of bytes read from a file, enough for a bundle of about a hundred certificates."""
LONGEST_NAME: Final = 200
KINDS: Final = {1: "MSMQ 1.0", 3: "MSMQ 2.0", 5: "MSMQ 3.0"}
"""The names of the kinds of signatures."""
_CERTIFICATE: Final = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_HEX: Final = re.compile(rb"[0-9A-Fa-f\s]+")
_ALONE: Final = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----")


class Evidence(NamedTuple):
    """What keys prove about one message; each field is None if it is unknown or does not apply.

    verified: whether the message's signature is confirmed by the certificate in the message, or by a key at hand.
    signer: the signer's name, if the certificate that proves the signature, or its issuer's certificate, is at hand;
        otherwise the file of the key that proves it.
    signature, decryption: the result in words, with the reason if something is unknown.
    plain: the message's decrypted body, if it was encrypted.
    """

    verified: bool | None = None
    signer: str | None = None
    signature: str | None = None
    decryption: str | None = None
    plain: bytes | None = None

    def findings(self, packet: int) -> list[Finding]:
        """Return a finding if the signature of a packet does not hold.

        It is only a note, because which bytes a signature covers is a matter of interpretation.
        """
        if self.verified is not False:
            return []
        text = f"the signature {self.signature}"
        return [Finding(Severity.NOTE, "bad-signature", packet, text, "[MS-MQQB] 3.1.5.8.3")]


NOTHING: Final = Evidence()


@dataclass(slots=True)
class Found:
    """The keys and certificates found in files, each with the name of its file."""

    pairs: list[tuple[float, str, KeyPair]] = field(default_factory=list)
    certificates: list[tuple[str, Certificate]] = field(default_factory=list)
    keys: list[tuple[str, PublicKey]] = field(default_factory=list)


class KeyRing:
    """The keys and certificates that were found, ready to decrypt and to verify."""

    def __init__(self, found: Found) -> None:
        from mqproto.security import Examiner

        pairs = sorted(found.pairs, key=lambda each: -each[0])
        self._files = {pair.public: where for _, where, pair in reversed(pairs)}
        self._files |= {key: where for where, key in found.keys}
        self._certificates = [certificate for _, certificate in found.certificates]
        public = [*(key for _, key in found.keys), *(each.key for each in self._certificates)]
        self._examiner = Examiner([pair for _, _, pair in pairs], public)
        self._holder = lru_cache(maxsize=1_000)(self._holder_of)

    def evidence(self, message: UserMessage, cut_bytes: int = 0) -> Evidence:
        """Return what the keys prove about a message.

        Args:
            cut_bytes: how much of the message the capture lacks.
        """
        protection = protection_of(message)
        if protection.signed is None and protection.encrypted is None:
            return NOTHING
        if cut_bytes:
            why = f"the capture lacks {cut_bytes:,} bytes of it"
            return Evidence(
                signature=None if protection.signed is None else f"not checked: {why}",
                decryption=None if protection.encrypted is None else f"not opened: {why}",
            )
        if protection.encrypted is None:
            return Evidence(*self._signature(message))
        return self._encrypted(message, is_signed=protection.signed is not None)

    def _encrypted(self, message: UserMessage, *, is_signed: bool) -> Evidence:
        """Return the evidence for an encrypted message.

        If several keys may fit, the one with which the signature holds is chosen.
        """
        from mqproto.security import ProtectionError

        try:
            openings = self._examiner.openings(message)
        except ProtectionError as refusal:
            signature = (
                "not checked: it is over the body in clear, and that is encrypted" if is_signed else None
            )
            return Evidence(signature=signature, decryption=f"not opened: {refusal.reason}")
        chosen = openings[0]
        verified, signer, signature = self._signature(chosen.message) if is_signed else (None, None, None)
        for other in openings[1:] if verified is False else ():
            said = self._signature(other.message)
            if said[0]:
                chosen, (verified, signer, signature) = other, said
                break
        body = chosen.message.properties.message_body
        return Evidence(verified, signer, signature, self._opened(chosen, verified=verified is True), body)

    def _opened(self, opening: Opening, *, verified: bool) -> str:
        where = self._files[opening.pair.public]
        unproved = (
            "" if opening.is_padded or verified else "; not proved, as RC4 has no padding that could be wrong"
        )
        return f"opened with {where}{unproved}"

    def _signature(self, message: UserMessage) -> tuple[bool | None, str | None, str | None]:
        from mqproto.security import ProtectionError

        try:
            proof = self._examiner.proof(message)
        except ProtectionError as refusal:
            return None, None, f"not checked: {refusal.reason}"
        if proof.kind is None:
            assert proof.certificate is not None, "by keys alone nothing is said not to hold"
            return False, None, f"does not hold, by its certificate of {_name(proof.certificate.subject)}"
        signer, words = self._by(proof)
        late = ""
        if (certificate := proof.certificate) is not None:
            is_valid = certificate.since_s <= message.user.sent_time_s <= certificate.until_s
            late = "" if is_valid else ", whose certificate was not valid when it was sent"
        return True, signer, f"holds, {KINDS[proof.kind]}, by {words}{late}"

    def _by(self, proof: Proof) -> tuple[str | None, str]:
        """Return the signer and a phrase that names the signer.

        The signer is None if the keys at hand do not prove who it is.
        """
        if proof.certificate is not None:
            signer, aside = self._holder(proof.certificate)
            return signer, f"{_name(proof.certificate.subject)}{aside}"
        assert proof.key is not None
        for certificate in self._certificates:
            if certificate.key == proof.key:
                name = _name(certificate.subject)
                return name, f"{name}, though it carries no certificate"
        where = self._files[proof.key]
        return where, f"the key in {where}"

    def _holder_of(self, certificate: Certificate) -> tuple[str | None, str]:
        """Return the confirmed holder of a certificate, and a remark.

        The holder is the name in the certificate, or the file of its key; None if no key or certificate at hand
        confirms it.
        """
        name = _name(certificate.subject)
        if certificate in self._certificates:
            return name, ""
        if where := self._files.get(certificate.key):
            return where, f", the key in {where}"
        for issuer in self._certificates:
            if certificate.is_issued_by(issuer):
                return name, f" (issued by {_name(issuer.subject)})"
        if certificate.is_issued_by(certificate):
            return None, " (self-signed, not in --keys)"
        return None, f" (issued by {_name(certificate.issuer)}, neither in --keys)"


def _name(text: str) -> str:
    """Return a name from a certificate, made safe to print: a stranger may have written it."""
    return printable(text if len(text) <= LONGEST_NAME else f"{text[: LONGEST_NAME - 1]}…")


def read_keys(paths: tuple[str, ...]) -> KeyRing:
    """Return the keys and certificates in files, for instance those that `mqproto keys` writes.

    For a folder, those in all of its files are returned. A file holds private keys and certificates in PEM, one
    certificate in DER, or a key of the CryptoAPI (PUBLICKEYBLOB or PRIVATEKEYBLOB), as bytes or in hex.

    Raises:
        UsageError: a named file holds none of these, or no file in a named folder does.
    """
    found = Found()
    for path in map(Path, paths):
        try:
            if not path.is_dir():
                _take(path, found)
                continue
            count = sum(_take_of_folder(file, found) for file in sorted(path.iterdir()) if file.is_file())
        except OSError as error:
            raise UsageError(
                f"{error.filename or path}: {error.strerror}: name keys that you can read"
            ) from None
        if not count:
            raise UsageError(
                f"{path}: no keys or certificates are in it: name the folder NODE.keys, or files"
            )
    return KeyRing(found)


def _take_of_folder(file: Path, found: Found) -> bool:
    """Take a file's keys and certificates; return whether it has any.

    If it has none, an error is raised only if it seems to hold a private key.
    """
    try:
        _take(file, found)
    except UsageError:
        with file.open("rb") as opened:
            if _ALONE.search(opened.read(LIMIT_BYTES)):
                raise
        return False
    return True


def _take(path: Path, found: Found) -> None:
    from mqproto.security import Certificate, KeyPair, PublicKey
    from mqproto.wire.layouts.keyblobs import begins_private_key

    with path.open("rb") as file:
        data = file.read(LIMIT_BYTES)
        modified_s = path.stat().st_mtime
    if _HEX.fullmatch(data):
        data = _from_hex(data)
    try:
        certificates = [Certificate.from_bytes(each) for each in _certificates_in(data)]
        if begins_private_key(data) or _ALONE.search(data):
            found.pairs.append((modified_s, str(path), KeyPair.from_bytes(data)))
        elif not certificates:
            found.keys.append((str(path), PublicKey.from_bytes(data)))
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    found.certificates += ((str(path), certificate) for certificate in certificates)


def _certificates_in(data: bytes) -> Iterator[bytes]:
    """Yield the certificates in the data: every one in PEM, or the whole data if it is a certificate in DER."""
    if data.startswith(b"\x30"):
        from mqproto.security import Certificate

        try:
            yield Certificate.from_bytes(data).der
        except UsageError:
            return
    else:
        yield from _CERTIFICATE.findall(data)


def _from_hex(data: bytes) -> bytes:
    try:
        return bytes.fromhex(data.decode("ascii"))
    except ValueError:
        return data
