"""Finds requests in the bytes of a connection, and refuses those whose end is a guess. server.py has a table of them.

httptools has the grammar. It gets only what belongs to one request, and what it lets through is checked here.
[RFC 9112]
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import httptools

from mqproto.base.errors import MqprotoError

CRLF: Final = b"\r\n"
HEAD_END: Final = CRLF + CRLF
VERSIONS: Final = ("1.0", "1.1")
LONGEST_LENGTH: Final = 20
"""The maximum number of digits of a Content-Length."""
ABSOLUTE: Final = re.compile(r"https?://([^/?#@]+)(/[^#]*|\?[^#]*)?", re.IGNORECASE)


class MalformedError(MqprotoError):
    """This is not a request, or another server might find other requests in it."""


class HeadTooLargeError(MqprotoError):
    """The head of the request is too large."""


class BodyTooLargeError(MqprotoError):
    """The body is larger than its handler accepts."""


class RequestHead(NamedTuple):
    """The head of a request.

    target: the path and the query, or `*`, or the authority of a CONNECT.
    headers: the values of each header, decoded as Latin-1, keyed by its name in lower case.
    length: the length of the body in bytes; None for a chunked body.
    """

    method: str
    target: str
    headers: dict[str, list[str]]
    version: str = "1.1"
    length: int | None = 0
    keeps_alive: bool = True

    @property
    def expects(self) -> bool:
        """Whether the client may wait for `100 Continue` before it sends the body."""
        values = self.headers.get("expect", [])
        return self.version == "1.1" and any(value.lower() == "100-continue" for value in values)


class _Parsed:
    """What httptools finds in one request."""

    def __init__(self) -> None:
        self.target = b""
        self.headers: dict[str, list[str]] = {}
        self.has_head = self.is_whole = self.keeps_alive = False
        self.parser = httptools.HttpRequestParser(self)

    def on_url(self, part: bytes) -> None:
        self.target += part

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.has_head:  # Else it is a trailer.
            values = self.headers.setdefault(name.decode("latin-1").lower(), [])
            values.append(value.strip(b" \t").decode("latin-1"))

    def on_headers_complete(self) -> None:
        self.has_head, self.keeps_alive = True, self.parser.should_keep_alive()

    def on_message_complete(self) -> None:
        self.is_whole = True


class Requests:
    """The requests of one connection, one after the other.

    Args:
        head_bytes: the maximum size of a head, and of the trailers of a chunked body.
    """

    def __init__(self, head_bytes: int) -> None:
        self.is_over = False
        """Whether the client has closed its end."""
        self._head_bytes = head_bytes
        self._came = b""
        self._begin()

    def _begin(self) -> None:
        self._parsed = _Parsed()
        self._fed_bytes = 0
        """How much of the head httptools has."""
        self._may_skip = True
        self._left_bytes = 0
        """How many bytes of the body, or of its current chunk, have yet to come."""
        self._has_lines = False
        """Whether the body has lines around its chunks, and has not ended."""
        self._ends_chunk = False
        self._is_sized = True
        """Whether the next line of a chunked body may be the size of a chunk."""
        self._trailer_bytes = 0
        self._is_broken = False

    @property
    def has_come(self) -> bool:
        """Whether there are bytes that belong to no request yet."""
        return bool(self._came)

    @property
    def room_bytes(self) -> int:
        """How much of a head may still be read: one byte more than there may be."""
        return self._head_bytes + 1 - len(self._came)

    @property
    def is_whole(self) -> bool:
        """Whether the body of the current request has been taken to its end."""
        return not (self._left_bytes or self._has_lines or self._is_broken)

    def receive(self, data: bytes) -> None:
        """Take what the client has sent; nothing if it has closed its end."""
        self._came += data
        self.is_over = not data

    def head(self) -> RequestHead | None:
        """Return the head of the next request; None if it is not complete.

        Raises:
            MalformedError, HeadTooLargeError: there is no such head.
        """
        if self._parsed.has_head:
            self._begin()
        if self._may_skip and self._came.startswith(CRLF):  # One may come before a request.
            self._came, self._may_skip = self._came[len(CRLF) :], False
        if self._came in (b"", CRLF[:1]):
            return None
        if self._came[:1] in CRLF:
            raise MalformedError("an empty line")
        end = self._came.find(HEAD_END, max(0, self._fed_bytes - len(HEAD_END)))
        stop = len(self._came) if end < 0 else end + len(HEAD_END)
        if stop > self._head_bytes:
            raise HeadTooLargeError
        self._feed(self._came[self._fed_bytes : stop])
        self._fed_bytes = stop
        if end < 0:
            if self.is_over:
                raise MalformedError("a head without an end")
            return None
        line = self._came.partition(CRLF)[0]
        self._came = self._came[stop:]
        if line.count(b" ") != 2:
            raise MalformedError("the line of the request has not three parts")
        head = self._checked()
        self._left_bytes, self._has_lines = head.length or 0, head.length is None
        return head

    def _feed(self, data: bytes) -> None:
        try:
            self._parsed.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # A server may go on with the protocol that it speaks. [RFC 9110] 7.8
        except httptools.HttpParserError as error:
            self._is_broken = True
            raise MalformedError(str(error)) from None

    def _checked(self) -> RequestHead:
        """Return the head of the current request, after checking what httptools does not."""
        parsed, version = self._parsed, self._parsed.parser.get_http_version()
        headers, method = parsed.headers, self._parsed.parser.get_method().decode("ascii")
        lengths, codings = headers.get("content-length", []), headers.get("transfer-encoding", [])
        hosts = len(headers.get("host", []))
        is_old = version == "1.0"
        is_known = parsed.has_head and parsed.target.isascii() and version in VERSIONS
        if not is_known or (hosts != 1 and not (is_old and not hosts)):
            raise MalformedError("HTTP/1.1 has other requests")
        if (
            any(len(length) > LONGEST_LENGTH or not length.isdecimal() for length in lengths)
            or [coding.lower() for coding in codings] not in ([], ["chunked"])
            or (codings and (lengths or is_old))
            or (is_old and method == "POST" and not lengths)
        ):
            raise MalformedError("nobody knows where the body ends")
        head = RequestHead(
            method,
            parsed.target.decode("ascii"),
            headers,
            version,
            None if codings else int(lengths[0]) if lengths else 0,
            not is_old and parsed.keeps_alive,
        )
        return in_origin_form(head)

    def part(self, most_bytes: float) -> bytes | None:
        """Return the part of the body that has come; empty at its end, None if nothing has come.

        Raises:
            MalformedError: the rest of the body is not valid, or does not come.
            BodyTooLargeError: the part has more than `most_bytes`, or will: for a chunk, its size says so.
        """
        while not self.is_whole:
            if self._is_broken:
                raise MalformedError("what is here belongs to no request")
            if not self._left_bytes:
                if not self._has_line():
                    return None
                continue
            data = self._came[: self._left_bytes]
            if max(len(data), self._left_bytes * self._has_lines) > most_bytes:
                raise BodyTooLargeError
            if not data:
                self._see_that_more_comes()
                return None
            self._came = self._came[len(data) :]
            self._left_bytes -= len(data)
            if self._has_lines:
                self._feed(data)
            return data
        return b""

    def _has_line(self) -> bool:
        """Take the next line around a chunk. Return whether it has come.

        Raises:
            MalformedError: it is not valid, or does not come.
        """
        line, end, rest = self._came.partition(b"\n")
        if self._trailer_bytes + len(line) > self._head_bytes:
            self._is_broken = True
            raise MalformedError("a line is too long")
        if not end:
            self._see_that_more_comes()
            return False
        self._came = rest
        self._trailer_bytes += 0 if self._is_sized else len(line)
        self._feed(line + end)
        if self._parsed.is_whole:
            self._has_lines = False
        elif self._ends_chunk:
            self._ends_chunk = False
        elif self._is_sized:
            self._left_bytes = int(line.partition(b";")[0], 16)
            self._ends_chunk = self._is_sized = self._left_bytes > 0
        return True

    def _see_that_more_comes(self) -> None:
        if self.is_over:
            raise MalformedError("the body has no end")


def in_origin_form(head: RequestHead) -> RequestHead:
    """Return the head in the form that a client without a proxy sends.  [RFC 9112] 3.2.2

    In this form, an absolute target has become a path and a Host header.

    Raises:
        MalformedError: the target is not valid.
    """
    if head.target.startswith("/") or head.target == "*" or head.method == "CONNECT":
        return head
    found = ABSOLUTE.fullmatch(head.target)
    if found is None:
        raise MalformedError("the target is neither a path nor a URL of HTTP")
    path = found[2] or ("*" if head.method == "OPTIONS" else "/")
    if path.startswith("?"):
        path = "/" + path
    return head._replace(target=path, headers=head.headers | {"host": [found[1]]})
