"""Refusals of encrypted or signed messages: each has a message class, and a reason without secrets."""

from __future__ import annotations

from mqproto.turn.guard import ProtectionError
from mqproto.wire import MessageClass

__all__ = ["ProtectionError", "bad_encryption", "bad_signature", "unsupported"]


def bad_encryption(reason: str) -> ProtectionError:
    return ProtectionError(MessageClass.NACK_BAD_ENCRYPTION, reason)


def bad_signature(reason: str) -> ProtectionError:
    return ProtectionError(MessageClass.NACK_BAD_SIGNATURE, reason)


def unsupported(reason: str) -> ProtectionError:
    return ProtectionError(MessageClass.NACK_UNSUPPORTED_CRYPTO_PROVIDER, reason)
