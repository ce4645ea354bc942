"""Keys as the CryptoAPI writes them: every byte is in its place, and wrong ones are refused.

Wine's CryptoAPI reads and writes the same bytes: tests/security/wine.
"""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from hypothesis import assume, given, strategies as st

from mqproto.base.errors import UsageError, WireFormatError
from mqproto.testing import mutated, public_key_blobs, simple_blobs
from mqproto.wire import (
    PublicKeyBlob,
    SimpleBlob,
    encode_packet,
    inspect_stream,
    public_key_blob,
    simple_blob,
)
from mqproto.wire.layouts.keyblobs import RSA_SIGN, KeyBlob
from mqproto.wire.layouts.ping import begins_ping
from mqproto.wire.schema.record import Record
from tests.examples import a_security_header, a_user_message

MODULUS = bytes(range(1, 65))
PUBLIC = "06 02 0000 00a40000 52534131 00020000 01000100" + MODULUS.hex()
OF_MICROSOFT = (
    "0602000000240000525341310004000001000100"
    "b5fc90e7027f67871e773a8fde8938c81dd402ba65b9201d60593e96c492651e889cc13f1415ebb53fac1131ae0bd333"
    "c5ee6021672d9718ea31a8aebd0da0072f25d87dba6fc90ffd598ed4da35e44c398c454307e8e33b8426143daec9f596"
    "836f97c8f74750e5975c64e2189f45def46b2a2b1247adc3652bf5c308055da9"
)
"""The public key of assemblies whose token is 31bf3856ad364e35, such as those of WPF."""
TOKEN = "31bf3856ad364e35"
STRONG_NAME = bytes.fromhex("002400000480000094000000")
"""The bytes before the blob in an assembly: the algorithms for signature and hash, and the blob's size."""
SIMPLE = "01 02 0000 10660000 00a40000" + MODULUS.hex()


@pytest.mark.spec("[MS-MQQB] 2.4.1")
def test_a_public_key_lies_as_the_cryptoapi_has_it() -> None:
    blob = PublicKeyBlob(modulus=MODULUS)
    assert public_key_blob.encode(blob) == bytes.fromhex(PUBLIC)
    assert public_key_blob.decode(bytes.fromhex(PUBLIC)) == blob


@pytest.mark.spec("[MS-MQMQ] 2.2.20.6")
def test_a_key_for_signatures_has_another_type() -> None:
    data = bytes.fromhex(PUBLIC.replace("00a40000", "00240000"))
    assert public_key_blob.decode(data).key_algorithm == RSA_SIGN
    assert public_key_blob.encode(PublicKeyBlob(key_algorithm=RSA_SIGN, modulus=MODULUS)) == data


@pytest.mark.spec("[MS-MQMQ] 2.2.20.6")
def test_a_key_that_others_have_written_is_read() -> None:
    """The token is the end of the hash of the key's bytes, so we cannot have made any of these bytes up."""
    data = bytes.fromhex(OF_MICROSOFT)
    assert hashlib.sha1(STRONG_NAME + data).digest()[:-9:-1].hex() == TOKEN
    blob = public_key_blob.decode(data)
    assert (blob.key_algorithm, blob.pub_exp, len(blob.modulus) * 8) == (RSA_SIGN, 65_537, 1_024)
    assert public_key_blob.encode(blob) == data


@pytest.mark.spec("[MS-MQQB] 2.4.2")
def test_a_session_key_lies_as_the_cryptoapi_has_it() -> None:
    blob = SimpleBlob(encrypted_key=MODULUS)
    assert simple_blob.encode(blob) == bytes.fromhex(SIMPLE)
    assert simple_blob.decode(bytes.fromhex(SIMPLE)) == blob


@given(public_key_blobs() | simple_blobs())
def test_what_is_encoded_decodes_to_itself(blob: KeyBlob) -> None:
    record = definition_of(blob)
    data = record.encode(blob)
    assert record.decode(data) == blob
    assume(not begins_ping(data))  # By the bytes of Reserved it may as well be one.
    [(at, inspection)] = inspect_stream(data)
    assert (at, inspection.packet, inspection.findings) == (0, blob, [])
    assert b"".join(field.raw for field in inspection.fields) == data


@given(st.data())
def test_what_an_analyst_is_shown_is_every_byte_and_the_same_verdict(data: st.DataObject) -> None:
    blob = data.draw(public_key_blobs() | simple_blobs())
    record = definition_of(blob)
    valid = record.encode(blob)
    hurt = data.draw(mutated(valid) | st.binary(max_size=100).map(valid[:4].__add__))
    if hurt[:2] == valid[:2] and not begins_ping(hurt):
        [(_, inspection)] = inspect_stream(hurt)
        assert b"".join(field.raw for field in inspection.fields) == hurt
        try:
            record.decode(hurt)
        except WireFormatError:
            assert not inspection.is_valid
        else:
            assert inspection.is_valid


def definition_of(blob: KeyBlob) -> Record[Any]:
    return public_key_blob if isinstance(blob, PublicKeyBlob) else simple_blob


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({0: 7}, "blob_type at byte 0 is 7, must be 0x6"),
        ({1: 3}, "blob_version at byte 1 is 3, must be 0x2"),
        ({5: 0xA5}, "key_algorithm at byte 4 is 0xa500, must be 0xa400, or 0x2400 for signatures"),
        ({11: 0x32}, "magic at byte 8 is 0x32415352, must be 0x31415352"),
        ({12: 4}, "bit_len at byte 12 is 0x204, must be a multiple of 8"),
        ({13: 1}, "bit_len at byte 12 is 0x100, must be at least 512"),
        ({12: 8, 13: 0x40}, "bit_len at byte 12 is 0x4008, must be at most 16384"),
        ({15: 0xFF}, "bit_len at byte 12 is 0xff000200, must be at most 16384"),
        ({13: 4}, "modulus at byte 20 is 64 bytes, must be 128 bytes"),
    ],
)
@pytest.mark.spec("[MS-MQQB] 2.4.1")
def test_a_public_key_is_refused_by_the_field_that_is_wrong(changed: dict[int, int], says: str) -> None:
    data = bytearray.fromhex(PUBLIC)
    for at, value in changed.items():
        data[at] = value
    with pytest.raises(WireFormatError) as refusal:
        public_key_blob.decode(bytes(data))
    assert str(refusal.value) == f"{says}  [MS-MQQB] 2.4.1"


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (
            SIMPLE.replace("10660000", "03660000"),
            "session_key_algorithm at byte 4 is 0x6603, must be 0x660e, ",
        ),
        (SIMPLE.replace("00a40000", "00240000"), "key_algorithm at byte 8 is 0x2400, must be 0xa400"),
        (SIMPLE[:-2], "encrypted_key at byte 12 is 0x3f, must be at least 64 bytes"),
        (SIMPLE + "00" * 2_000, "encrypted_key at byte 12 is 0x810, must be at most 2048 bytes"),
    ],
)
@pytest.mark.spec("[MS-MQQB] 2.4.2")
def test_a_session_key_is_refused_by_the_field_that_is_wrong(data: str, says: str) -> None:
    with pytest.raises(WireFormatError) as refusal:
        simple_blob.decode(bytes.fromhex(data))
    assert str(refusal.value).startswith(says)


def test_what_breaks_a_rule_is_not_written() -> None:
    with pytest.raises(UsageError, match="encrypted_key is 1, must be at least 64 bytes"):
        simple_blob.encode(SimpleBlob(encrypted_key=b"k"))
    with pytest.raises(UsageError, match="bit_len is 0, must be at least 512"):
        public_key_blob.encode(PublicKeyBlob())


@pytest.mark.spec("[MS-MQMQ] 2.2.20.6")
@pytest.mark.parametrize("hurt", [False, True])
def test_an_analyst_sees_the_session_key_in_a_message(hurt: bool) -> None:
    """Other bytes are not a fault: for a queue manager on the way they are just bytes."""
    blob = bytes.fromhex(SIMPLE)[: -8 if hurt else None]
    message = a_user_message()
    message.security = a_security_header(encryption_key=blob)
    message.user.has_security = True
    [(_, inspection)] = inspect_stream(encode_packet(message))
    seen = [field for field in inspection.fields if field.name.startswith("security.encryption_key.")]
    names = ["blob_type", "blob_version", "reserved", "session_key_algorithm"]
    assert inspection.is_valid
    assert inspection.packet == message
    assert b"".join(field.raw for field in seen) == (b"" if hurt else blob)
    assert [field.name.rpartition(".")[2] for field in seen[:4]] == ([] if hurt else names)
