r"""The gateway's requests and answers as JSON Schema: patterns, lengths and words.

An empty header counts as missing, so each of these schemas also accepts an empty text. Schemas do not express how
headers depend on each other, or how a body depends on its type; the descriptions do.
"""

from __future__ import annotations

import re
from typing import Any, Final

from mqproto.bodies.automation import BY_NAME
from mqproto.bodies.lexical import TYPES
from mqproto.edge.custody import RESOLVED, State
from mqproto.messages.drafts import LABEL_LIMIT
from mqproto.simulator.base.traces.context import TRACE, TRACE_STATE
from mqproto.simulator.client.talk import ACKNOWLEDGMENTS
from mqproto.simulator.edges import headers
from mqproto.simulator.edges.gateway.refusals import Code
from mqproto.simulator.node.posting import CLASSES
from mqproto.turn.guard import CIPHERS
from mqproto.wire.layouts.sid import SUB_AUTHORITY_LIMIT

Schema = dict[str, Any]

UINT32: Final = (
    "(?:0|[1-9][0-9]{0,8}|[1-3][0-9]{9}|4[01][0-9]{8}|42[0-8][0-9]{7}|429[0-3][0-9]{6}|4294[0-8][0-9]{5}"
    "|42949[0-5][0-9]{4}|429496[0-6][0-9]{3}|4294967[01][0-9]{2}|42949672[0-8][0-9]|429496729[0-5])"
)
"""The pattern of a 32-bit number without leading zeros."""
_TAIL: Final = "%[89ABab][0-9A-Fa-f]"
ENCODED: Final = (
    rf"(?:[\t -$&-~]|%(?![0-9A-Fa-f]{{2}})|%0[1-9A-Fa-f]|%[1-7][0-9A-Fa-f]|%(?:[Cc][2-9A-Fa-f]|[Dd][0-9A-Fa-f]){_TAIL}"
    rf"|%[Ee]0%[ABab][0-9A-Fa-f]{_TAIL}|%[Ee][1-9A-CEFa-cef](?:{_TAIL}){{2}}|%[Ee][Dd]%[89][0-9A-Fa-f]{_TAIL}"
    rf"|%[Ff]0%[9ABab][0-9A-Fa-f](?:{_TAIL}){{2}}|%[Ff][1-3](?:{_TAIL}){{3}}|%[Ff]4%8[0-9A-Fa-f](?:{_TAIL}){{2}})"
)
"""The pattern of one character in percent-encoded UTF-8, except NUL.

A percent sign that does not begin an escape stands for itself.  [RFC 3629] 4
"""
BODY_TYPES: Final = (
    f"{UINT32}|0x[0-9A-Fa-f]{{1,8}}|bytes|{'|'.join(map(re.escape, BY_NAME))}"
    f"|xml(?::(?:json|{'|'.join(TYPES)}|(?:ArrayOf)+[A-Z][A-Za-z0-9]*))?"
)
_ASKED: Final = f"(?:{'|'.join(ACKNOWLEDGMENTS)})"
MESSAGE_ID: Final = r"^[0-9A-F]{8}(?:-[0-9A-F]{4}){3}-[0-9A-F]{12}\\[0-9]{1,10}$"


LIFE: Final[dict[str, Schema]] = {
    "message": {
        "type": "string",
        "pattern": MESSAGE_ID,
        "description": "Its identifier, once it is accepted.",
    },
    "class": {
        "type": "string",
        "enum": [*CLASSES, RESOLVED],
        "description": "That of the acknowledgment with which its way ended.",
    },
    "ended": {"type": "string", "format": "date-time"},
    "attempts": {"type": "integer", "minimum": 1, "description": "How often its consumer was called."},
    "reason": {"type": "string", "description": "What its consumer said."},
}
STATE: Final[Schema] = {"type": "string", "enum": list(State), "description": "What became of it."}


def key(length: int) -> str:
    """Return the pattern of a producer's id, which may be in quotation marks."""
    return rf'^[ -~]{{1,{length}}}$|^"[ -~]{{1,{length}}}"$'


def text(pattern: str, example: str = "") -> Schema:
    """Return the schema of a header with text, which may be empty."""
    return {
        "type": "string",
        "pattern": f"^(?:{pattern})?$",
        **({"examples": [example]} if example else {}),
    }


def number(digits: str, example: str) -> Schema:
    """Return the schema of a header with a number, which may have leading zeros."""
    return text(f"0{{0,9}}{digits}", example)


OF_HEADERS: Final[dict[str, Schema]] = {
    headers.LABEL: text(f"{ENCODED}{{1,{LABEL_LIMIT}}}", "drei%20St%C3%BCck"),
    headers.PRIORITY: number("[0-7]", "7"),
    headers.REACH: number(UINT32, "3600"),
    headers.RECEIVE: number(UINT32, "86400"),
    headers.CORRELATION: text("[0-9A-Fa-f]{40}", "00112233445566778899AABBCCDDEEFF00112233"),
    headers.BODY_TYPE: text(BODY_TYPES, "VT_BSTR"),
    headers.APPLICATION_TAG: number(UINT32, "4294967295"),
    headers.EXTENSION: text(
        "(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})", "AAEC/w=="
    ),
    headers.RESPONSE_QUEUE: text(f"{ENCODED}+", "answers"),
    headers.ADMIN_QUEUE: text(f"{ENCODED}+", "destination%5Cprivate%24%5Cacks"),
    headers.ACKNOWLEDGE: text(
        rf"[ \t,]*(?:{headers.NONE}|{_ASKED}(?:[ \t]*,[ \t,]*{_ASKED})*)?[ \t,]*", ", ".join(ACKNOWLEDGMENTS)
    ),
    headers.SENDER_ID: text(
        rf"[Ss]-1-(?:0|[1-9][0-9]{{0,9}}|0[xX][0-9A-Fa-f]{{12}})(?:-{UINT32}){{1,{SUB_AUTHORITY_LIMIT}}}",
        "S-1-5-21-3180219053-1037752630-3663111779-1000",
    ),
    headers.ENCRYPT: text(f"(?:{'|'.join((headers.YES, *CIPHERS))})", "AES-256"),
    headers.SIGN: text(headers.SIGNERS, headers.YES),
}
"""The schemas of the headers that give a message's properties, keyed by the header's name."""
assert OF_HEADERS.keys() == headers.HEADERS.keys()


def of_forwarded(name: str) -> Schema:
    """Return the schema of a forwarded header.

    A trace may be any text, because an invalid trace is left out.
    """
    return {"type": "string"} if name in (TRACE, TRACE_STATE) else text("[ -~]+")


def of_answers(key_length: int) -> dict[str, Schema]:
    """Return the schemas of the bodies of all answers, keyed by name."""
    return {
        "Accepted": _object(
            id={
                "type": "string",
                "pattern": MESSAGE_ID,
                "description": "The message's identifier; a duplicate has the first's.",
            },
            duplicate={"type": "boolean", "description": "Whether it was here before, and is dropped."},
        ),
        "Trail": _object(
            optional={
                **LIFE,
                "before": {
                    "type": "array",
                    "items": _object(optional=LIFE, state=STATE),
                    "description": "Its lives before, after each of which it was sent once more.",
                },
            },
            id={"type": "string", "pattern": key(key_length), "description": "The producer's."},
            queue={"type": "string", "description": r"Such as destination\orders."},
            state=STATE,
        ),
        "Health": _object(status={"const": "ok"}),
        "Problem": {
            **_object(
                type={
                    "type": "string",
                    "format": "uri",
                    "enum": [code.problem for code in Code],
                    "description": "Names the problem; it is not an address.",
                },
                title={"type": "string", "description": "What the code means."},
                status={"type": "integer", "description": "That of the answer."},
                detail={"type": "string", "description": "What is wrong here, and what to do."},
                code={"type": "string", "enum": list(Code), "description": "The last part of the type."},
                message={"type": "string", "description": "The same as the detail."},
            ),
            "description": "Why a request is not answered 200.  [RFC 9457]",
        },
    }


def of_problem(status: int, codes: list[Code]) -> Schema:
    """Return the schema of the problems that are answered with a given status."""
    return {
        "allOf": [{"$ref": "#/components/schemas/Problem"}],
        "properties": {
            "type": {"enum": [code.problem for code in codes]},
            "status": {"const": status},
            "code": {"enum": codes},
        },
    }


def _object(*, optional: dict[str, Schema] | None = None, **properties: Schema) -> Schema:
    return {
        "type": "object",
        "required": list(properties),
        "properties": {**properties, **(optional or {})},
    }
