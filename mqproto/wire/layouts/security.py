"""The SecurityHeader and its five data items.  [MS-MQMQ] 2.2.20.6"""

from __future__ import annotations

from dataclasses import dataclass, field

from construct import Int16ul, Int32ul, Rebuild, len_, this

from mqproto.wire.layouts.keyblobs import simple_blob
from mqproto.wire.layouts.sid import sid_text
from mqproto.wire.schema.layout import Layout, Must
from mqproto.wire.schema.parts import Holding, Octets, Pad4, TerminatedText
from mqproto.wire.schema.record import Bit, Bits, Record

NO_SENDER, SID, QUEUE_MANAGER = range(3)
"""The types of sender identifiers: the values of ST."""


@dataclass(slots=True)
class SecurityHeader:
    """The sender of a message, its signature, and its encryption.  [MS-MQMQ] 2.2.20.6

    An item without bytes is absent. SecurityData counts as present if any of its sizes is not zero, regardless of AI:
    the message in [MS-MQQB] 4.1.7 has a sender's SID although AI is clear.
    """

    flags: int = 0
    sender_id: bytes = b""
    sender_id_padding: bytes = field(default=b"", compare=False, repr=False)
    encryption_key: bytes = b""
    encryption_key_padding: bytes = field(default=b"", compare=False, repr=False)
    signature: bytes = b""
    signature_padding: bytes = field(default=b"", compare=False, repr=False)
    sender_cert: bytes = b""
    sender_cert_padding: bytes = field(default=b"", compare=False, repr=False)
    provider_info: bytes = b""
    provider_info_padding: bytes = field(default=b"", compare=False, repr=False)

    sender_id_type = Bits(0, 4)
    authenticated = Bit(4)
    body_encrypted = Bit(5)
    default_provider = Bit(6)
    has_security_data = Bit(7)
    signature_type = Bits(8, 4)

    @property
    def sid(self) -> str:
        """The SID that the message claims for its sender, which is not verified here; empty if it claims none."""
        return sid_text(self.sender_id) if self.sender_id_type == SID else ""

    @property
    def has_sid_alone(self) -> bool:
        """Whether the header has nothing but a SID, so that nothing is signed or encrypted."""
        others = self.encryption_key, self.signature, self.sender_cert, self.provider_info
        return bool(self.sid) and not self.body_encrypted and not any(others)


_sender_id_type = SecurityHeader.sender_id_type.within(this.flags)

security_header = Record(
    SecurityHeader,
    Layout(
        "[MS-MQMQ] 2.2.20.6",
        "flags" / Int16ul,
        "sender_id_size" / Rebuild(Int16ul, len_(this.sender_id)),
        "encryption_key_size" / Rebuild(Int16ul, len_(this.encryption_key)),
        "signature_size" / Rebuild(Int16ul, len_(this.signature)),
        "sender_cert_size" / Rebuild(Int32ul, len_(this.sender_cert)),
        "provider_info_size" / Rebuild(Int32ul, len_(this.provider_info)),
        Must("flags", _sender_id_type <= 2, "0, 1 or 2", part="sender_id_type", value=_sender_id_type),
        Must("sender_id_size", (_sender_id_type != 0) | (this.sender_id_size == 0), "0, as ST is 0"),
        Must("sender_cert_size", this.sender_cert_size <= 0xFFFF, "at most 0xffff"),
        Must(
            "provider_info_size",
            this.sender_id_size
            + this.encryption_key_size
            + this.signature_size
            + this.sender_cert_size
            + this.provider_info_size
            > 0,
            "above 0, as the four sizes before it are 0",
        ),
        "sender_id" / Octets(this.sender_id_size),
        "sender_id_padding" / Pad4(),
        "encryption_key" / Holding(this.encryption_key_size, simple_blob),
        "encryption_key_padding" / Pad4(),
        "signature" / Octets(this.signature_size),
        "signature_padding" / Pad4(),
        "sender_cert" / Octets(this.sender_cert_size),
        "sender_cert_padding" / Pad4(),
        "provider_info" / Octets(this.provider_info_size),
        "provider_info_padding" / Pad4(),
    ),
)


@dataclass(slots=True)
class ProviderInfo:
    """The cryptographic provider that made a signature, as found in `SecurityHeader.provider_info`."""

    provider_type: int = 0
    provider_name: str = ""


provider_info = Record(
    ProviderInfo,
    Layout("[MS-MQMQ] 2.2.20.6", "provider_type" / Int32ul, "provider_name" / TerminatedText()),
)
