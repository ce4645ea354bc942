"""Message properties as HTTP headers, for both the gateway and the trigger.

Texts are UTF-8, percent-encoded. A property that a message lacks has no header. The producer's Content-Type, its id and
the headers of `forwarding.py` travel in the message's extension (`client/envelope.py`). A message with another
extension does without them.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from typing import Final
from urllib.parse import quote, unquote

from mqproto.base.errors import UsageError
from mqproto.base.foreign import quoted
from mqproto.simulator.client.client import DraftOptions
from mqproto.simulator.client.talk import ACKNOWLEDGMENTS, acknowledgments, privacy, signer
from mqproto.simulator.security.keyfiles import SIGNING
from mqproto.turn.guard import CIPHERS
from mqproto.wire import INFINITE

LABEL: Final = "MQ-Label"
PRIORITY: Final = "MQ-Priority"
REACH: Final = "MQ-Time-To-Reach-Queue"
RECEIVE: Final = "MQ-Time-To-Be-Received"
CORRELATION: Final = "MQ-Correlation-Id"
BODY_TYPE: Final = "MQ-Body-Type"
APPLICATION_TAG: Final = "MQ-Application-Tag"
EXTENSION: Final = "MQ-Extension"
RESPONSE_QUEUE: Final = "MQ-Response-Queue"
ADMIN_QUEUE: Final = "MQ-Admin-Queue"
ACKNOWLEDGE: Final = "MQ-Acknowledge"
SENDER_ID: Final = "MQ-Sender-Id"
ENCRYPT: Final = "MQ-Encrypt"
SIGN: Final = "MQ-Sign"
YES: Final = "yes"
SIGNERS: Final = r"(?:[A-Za-z0-9][A-Za-z0-9_-]{0,63})?"
NONE: Final = "none"
HEADERS: Final = {
    LABEL: "the label, in UTF-8, percent-encoded",
    PRIORITY: "0 to 7; only where the queue is not transactional",
    REACH: "seconds until it must be in its queue",
    RECEIVE: "seconds until it must be received",
    CORRELATION: "20 bytes as 40 hexadecimal digits",
    BODY_TYPE: "of what type the body is to be, as `mqproto send --body-type` takes it: xml, VT_BSTR, 8",
    APPLICATION_TAG: "a number of 32 bits (COM: AppSpecific)",
    EXTENSION: "the extension in base64; Content-Type, the id and headers that travel are not in the message then",
    RESPONSE_QUEUE: "the queue that an answer is to go to, in UTF-8, percent-encoded",
    ADMIN_QUEUE: "the queue that acknowledgments go to, in UTF-8, percent-encoded",
    ACKNOWLEDGE: f"which of them: {', '.join(ACKNOWLEDGMENTS)}; or {NONE}; by default all",
    SENDER_ID: "the SID that the message names as its sender's, S-1-5-21-...; only a signature proves it",
    ENCRYPT: f"that nobody is to read the body on its way: {YES}, or a cipher: {', '.join(CIPHERS)}",
    SIGN: f"who signs it: {YES} for the node, or a user who has a key there",
}
"""The properties of a message that headers may give, in addition to its content type."""
EXTENSION_BYTES: Final = "MQ-Extension-Bytes"
EXTENSION_ROOM_BYTES: Final = 4_096
"""The size, in bytes, up to which a header contains the whole extension.

For a longer extension, a header gives only its size, because servers refuse long headers.
"""


class MessageOptions(DraftOptions, total=False):
    """The properties of a `Draft` that headers may give. Queues may be given by any kind of name."""

    label: str


def options_in(header: Callable[[str], str]) -> MessageOptions:
    """Return the options in the headers, except the body type, which is needed to make the body.

    Args:
        header: returns the value of a header; empty if it was not sent.

    Raises:
        UsageError: the value of a header is not valid.
    """
    level, algorithm = privacy(_said(header(ENCRYPT)), encrypts=bool(header(ENCRYPT)), name=f"{ENCRYPT}: ")
    options = MessageOptions(
        label=_text(LABEL, header(LABEL)),
        time_to_reach_queue_s=_number(REACH, header(REACH), INFINITE, INFINITE),
        time_to_be_received_s=_number(RECEIVE, header(RECEIVE), INFINITE, INFINITE),
        priority=_number(PRIORITY, header(PRIORITY), 7, 3),
        application_tag=_number(APPLICATION_TAG, header(APPLICATION_TAG), 0xFFFFFFFF, 0),
        response_queue=_text(RESPONSE_QUEUE, header(RESPONSE_QUEUE)),
        admin_queue=_text(ADMIN_QUEUE, header(ADMIN_QUEUE)),
        sender_id=header(SENDER_ID),
        privacy_level=level,
        encryption_algorithm=algorithm,
        signer=signer(_said(header(SIGN)), signs=bool(header(SIGN))),
    )
    if not re.fullmatch(SIGNERS, options["signer"]):
        raise UsageError(f"{SIGN} is {quoted(options['signer'])}: must be {YES}, or the name of a user")
    if text := header(CORRELATION):
        if not re.fullmatch(r"[0-9A-Fa-f]{40}", text):
            raise UsageError(f"{CORRELATION} is {quoted(text)}: must be 40 hexadecimal digits")
        options["correlation_id"] = bytes.fromhex(text)
    if text := header(EXTENSION):
        try:
            options["extension"] = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            raise UsageError(f"{EXTENSION} is {quoted(text)}: must be base64") from None
    names = [name.strip() for name in header(ACKNOWLEDGE).split(",") if name.strip()]
    options["acknowledgments"] = 0
    if names != [NONE] or not options["admin_queue"]:
        options["acknowledgments"] = acknowledgments(options["admin_queue"], names, ACKNOWLEDGE, ADMIN_QUEUE)
    return options


def headers_of(options: MessageOptions) -> dict[str, str]:
    """Return the headers for these options, which `options_in` reads.

    `MQ-Body-Type` has the number of the body type.
    """
    asked = options.get("acknowledgments", 0)
    extension = options.get("extension", b"")
    correlation_id = options.get("correlation_id", b"")
    priority = options.get("priority", 3)
    asked_for = [name for name, flag in ACKNOWLEDGMENTS.items() if asked & flag]
    said = {
        LABEL: _spelt(options.get("label", "")),
        PRIORITY: "" if priority == 3 else str(priority),
        CORRELATION: correlation_id.hex() if any(correlation_id) else "",
        BODY_TYPE: str(options.get("body_type") or ""),
        APPLICATION_TAG: str(options.get("application_tag") or ""),
        RESPONSE_QUEUE: _spelt(options.get("response_queue", "")),
        ADMIN_QUEUE: _spelt(options.get("admin_queue", "")),
        SENDER_ID: options.get("sender_id", ""),
        ENCRYPT: _cipher_of(options),
        SIGN: {SIGNING: YES}.get(name := options.get("signer", ""), name),
        ACKNOWLEDGE: ", ".join(asked_for or [NONE] * bool(options.get("admin_queue"))),
    }
    if len(extension) > EXTENSION_ROOM_BYTES:
        said[EXTENSION_BYTES] = str(len(extension))
    else:
        said[EXTENSION] = base64.b64encode(extension).decode("ascii")
    return {name: text for name, text in said.items() if text}


def _said(text: str) -> str:
    """Return the value of a header; empty if the header just says yes."""
    return "" if text.casefold() == YES else text


def _cipher_of(options: MessageOptions) -> str:
    level, algorithm = options.get("privacy_level", 0), options.get("encryption_algorithm", 0)
    return next(
        (word for word, cipher in CIPHERS.items() if cipher == (level, algorithm)), YES if level else ""
    )


def _spelt(text: str) -> str:
    return quote(text, errors="replace")


def _text(name: str, text: str) -> str:
    try:
        return unquote(text.encode("ascii"), errors="strict")
    except UnicodeError:
        raise UsageError(f"{name} must be UTF-8, percent-encoded") from None


def _number(name: str, text: str, most: int, default: int) -> int:
    if text and not (re.fullmatch(r"0{0,9}(0|[1-9][0-9]{0,9})", text) and int(text) <= most):
        raise UsageError(f"{name} is {quoted(text)}: must be a whole number, 0 to {most}")
    return int(text) if text else default
