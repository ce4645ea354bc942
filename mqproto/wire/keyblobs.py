"""Bytes to key blobs and back, as layouts/keyblobs.py has them.  [MS-MQQB] 2.4

What is refused is refused in the words of the layout; those quote the bytes of no key.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from mqproto.wire.generated import (
    build_public_key_blob,
    build_simple_blob,
    read_public_key_blob,
    read_simple_blob,
)
from mqproto.wire.layouts.keyblobs import (
    PUBLIC_KEY,
    KeyBlob,
    PublicKeyBlob,
    SimpleBlob,
    public_key_blob,
    simple_blob,
)
from mqproto.wire.schema.record import Record
from mqproto.wire.schema.refused import REFUSALS

T = TypeVar("T")


def decode_public_key_blob(data: bytes) -> PublicKeyBlob:
    """A public key.  [MS-MQQB] 2.4.1

    Raises:
        WireFormatError: these bytes are none.
    """
    return _decoded(read_public_key_blob, public_key_blob, data)


def decode_simple_blob(data: bytes) -> SimpleBlob:
    """A session key that is encrypted.  [MS-MQQB] 2.4.2

    Raises:
        WireFormatError: these bytes are none.
    """
    return _decoded(read_simple_blob, simple_blob, data)


def _decoded(read: Callable[[bytes], T], record: Record[T], data: bytes) -> T:
    data = bytes(data)
    try:
        return read(data)
    except REFUSALS:
        return record.decode(data)


def encode_key_blob(blob: KeyBlob) -> bytes:
    """The bytes of either.

    Raises:
        UsageError: a value breaks a rule of the specification.
    """
    is_public = isinstance(blob, PublicKeyBlob)
    try:
        return build_public_key_blob(blob) if is_public else build_simple_blob(blob)
    except REFUSALS:
        record: Record[Any] = public_key_blob if is_public else simple_blob
        return record.encode(blob)


def record_of(data: bytes) -> Record[Any]:
    """The layout of what begins as a key blob."""
    return public_key_blob if data[0] == PUBLIC_KEY else simple_blob
