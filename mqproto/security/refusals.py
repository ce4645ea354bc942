"""Why a message that is encrypted or signed is refused: its class, and words without a secret in them."""

from __future__ import annotations

from mqproto.base.errors import MqprotoError
from mqproto.wire import MessageClass


class ProtectionError(MqprotoError):
    """A message is refused.  [MS-MQMQ] 2.2.18.1.6

    Args:
        message_class: what its sender is told.
        reason: one line for an operator; it quotes no key and nothing that was decrypted.
    """

    def __init__(self, message_class: MessageClass, reason: str) -> None:
        super().__init__(message_class, reason)
        self.message_class = message_class
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.message_class.name}: {self.reason}"


def bad_encryption(reason: str) -> ProtectionError:
    return ProtectionError(MessageClass.NACK_BAD_ENCRYPTION, reason)


def bad_signature(reason: str) -> ProtectionError:
    return ProtectionError(MessageClass.NACK_BAD_SIGNATURE, reason)


def unsupported(reason: str) -> ProtectionError:
    return ProtectionError(MessageClass.NACK_UNSUPPORTED_CRYPTO_PROVIDER, reason)
