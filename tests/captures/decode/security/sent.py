"""Messages signed and encrypted in the way that nodes do it, as they are on the wire.

There are also keys with which to examine them.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

from mqproto.captures.decode.security.keyring import Found, KeyRing
from mqproto.security import (
    PROVIDERS,
    Certificate,
    KeyPair,
    Provider,
    SignatureKind,
    new_key_pair,
    new_sending_key,
    sealed,
    self_signed,
    signed,
)
from mqproto.wire import UserMessage, decode_message, encode_packet, sid_from_text
from mqproto.wire.layouts.keyblobs import AES_256
from mqproto.wire.layouts.security import SID
from tests.captures.decode.security.protections import USER
from tests.examples import SENT_S, a_user_message
from tests.security.keys import own_key

BODY: Final = b"order 17: a bolt"
BASE, ENHANCED, AES = PROVIDERS


@cache
def alice() -> Certificate:
    """Return a self-signed certificate for the owner of `own_key(1_024)`, who is called alice."""
    return self_signed(own_key(), "alice", SENT_S - 1_000, 3_650)


@cache
def other_key(bits: int = 1_024) -> KeyPair:
    return new_key_pair(bits)


def plain(**changes: object) -> UserMessage:
    return a_user_message(**{"body": BODY} | changes)


def signed_by(
    message: UserMessage,
    certificate: Certificate | None = None,
    *,
    own: KeyPair | None = None,
    kind: SignatureKind = SignatureKind.MSMQ_20,
) -> UserMessage:
    """Return a message with the SID of a user, and by default alice's signature."""
    return signed(
        message,
        own or own_key(),
        certificate or alice(),
        kind=kind,
        sender_id=sid_from_text(USER),
        sender_id_type=SID,
    )


def sealed_for(
    message: UserMessage,
    provider: Provider = AES,
    algorithm: int = AES_256,
    *,
    receiver: KeyPair | None = None,
) -> UserMessage:
    return sealed(message, new_sending_key(provider, algorithm, (receiver or own_key(512)).public))


def over(message: UserMessage) -> UserMessage:
    """Return a message as it would be read from a capture."""
    return decode_message(encode_packet(message))


def ring(*pairs: KeyPair, certificates: tuple[Certificate, ...] = ()) -> KeyRing:
    """Return a key ring with these certificates and key pairs; the file of each pair is named by the pair's number.

    The newest pair comes first.
    """
    return KeyRing(
        Found(
            [(-float(number), f"{number}.pem", pair) for number, pair in enumerate(pairs)],
            [("some.crt", certificate) for certificate in certificates],
        )
    )


def write_keys(folder: Path) -> Path:
    """Write the folder of a node's keys, as `mqproto keys` makes it. Return its path.

    The keys are for messages that `sealed_for` encrypts.
    """
    keys = folder / "qm2.keys"
    keys.mkdir()
    (keys / "aes.pem").write_bytes(own_key(512).pem())
    return keys
