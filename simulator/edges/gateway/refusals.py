"""Refusals that producers get, with codes for programs: the contract of "Message Producer Rules"."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

PROBLEM_JSON: Final = "application/problem+json"
"""The content type of a refusal.  [RFC 9457] 3"""
PROBLEM: Final = "urn:problem-type:mqproto:"
"""The beginning of the URI for a type of problem.

It is not an address, and is the same for every gateway.
"""


class Code(StrEnum):
    """The codes that producers get in addition to the HTTP status. Their meanings never change."""

    MALFORMED = "malformed"
    BAD_HEADER = "bad-header"
    KEY_MISSING = "key-missing"
    INVALID = "invalid"
    UNAUTHORISED = "unauthorised"
    FORBIDDEN = "forbidden"
    UNKNOWN_QUEUE = "unknown-queue"
    UNKNOWN_MESSAGE = "unknown-message"
    NOT_FOUND = "not-found"
    METHOD_NOT_ALLOWED = "method-not-allowed"
    BODY_TOO_LARGE = "body-too-large"
    KEY_REUSED = "key-reused"
    HEAD_TOO_LARGE = "head-too-large"
    TOO_MANY = "too-many"
    FAILED = "failed"
    NODE_UNAVAILABLE = "node-unavailable"
    QUEUE_FULL = "queue-full"
    IN_DOUBT = "in-doubt"
    IN_PROGRESS = "in-progress"
    HISTORY_UNAVAILABLE = "history-unavailable"
    TOO_SLOW = "too-slow"
    OVERLOADED = "overloaded"

    @property
    def problem(self) -> str:
        """The URI of this type of problem."""
        return PROBLEM + self


class Meaning(NamedTuple):
    """The meaning of a code.

    retry_after_s: the number of seconds after which the producer may try again; None if it should not.
    """

    status: int
    retry_after_s: int | None
    text: str


MEANINGS: Final = {
    Code.MALFORMED: Meaning(400, None, "the request is not HTTP/1.1"),
    Code.BAD_HEADER: Meaning(400, None, "a header has a value that it cannot have"),
    Code.KEY_MISSING: Meaning(400, None, "this gateway wants an id with each message"),
    Code.INVALID: Meaning(400, None, "no message can be like this"),
    Code.UNAUTHORISED: Meaning(401, None, "a bearer token is needed, or this one is nobody's"),
    Code.FORBIDDEN: Meaning(
        403, None, "the token does not open this queue, or has another role, or a page in a browser has none"
    ),
    Code.UNKNOWN_QUEUE: Meaning(404, None, "there is no such queue"),
    Code.UNKNOWN_MESSAGE: Meaning(404, None, "no message with this id was accepted"),
    Code.NOT_FOUND: Meaning(404, None, "there is nothing at this path"),
    Code.METHOD_NOT_ALLOWED: Meaning(405, None, "the path takes another method"),
    Code.IN_PROGRESS: Meaning(409, 2, "the message with this id is under way"),
    Code.BODY_TOO_LARGE: Meaning(413, None, "the body is larger than a message can carry"),
    Code.KEY_REUSED: Meaning(422, None, "the id belongs to a message with other content"),
    Code.HEAD_TOO_LARGE: Meaning(431, None, "the headers are too large"),
    Code.TOO_MANY: Meaning(429, 1, "the queue takes no more messages a second"),
    Code.FAILED: Meaning(500, 1, "the gateway has a bug"),
    Code.NODE_UNAVAILABLE: Meaning(503, 2, "the queue manager does not run, or does not answer"),
    Code.QUEUE_FULL: Meaning(503, 10, "the queue or its queue manager has used up its quota"),
    Code.IN_DOUBT: Meaning(503, 2, "the message may have been accepted, or not"),
    Code.HISTORY_UNAVAILABLE: Meaning(503, 2, "the document history cannot be written"),
    Code.TOO_SLOW: Meaning(503, 1, "the request did not come in time"),
    Code.OVERLOADED: Meaning(503, 2, "there is no room for more"),
}
"""The meanings of all codes. A business error has no retry time, because the message was not accepted. After other
errors, even 409, it may have been accepted.
"""


class Refusal(Exception):  # noqa: N818
    """A message is not accepted, or not accepted yet. The text is one line for the person who will fix the problem."""

    def __init__(self, code: Code, text: str, retry_after_s: float | None = None) -> None:
        super().__init__(text)
        self.code = code
        self.retry_after_s = MEANINGS[code].retry_after_s if retry_after_s is None else retry_after_s
