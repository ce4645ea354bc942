"""Makes checks that h11 lacks: refuses a request if two servers might disagree about where it ends.

server.py has a table of these cases.  [RFC 9112]
"""

from __future__ import annotations

import re
from typing import Final

import h11

BARE_LF: Final = re.compile(rb"(?<!\r)\n")
FOLDED: Final = re.compile(rb"\r\n[ \t]")
CRLF: Final = b"\r\n"
HEAD_END: Final = CRLF + CRLF
VERSIONS: Final = (b"1.0", b"1.1")
ABSOLUTE: Final = re.compile(rb"https?://([^/?#@]+)(/[^#]*|\?[^#]*)?", re.IGNORECASE)


def check_lines(data: bytes) -> None:
    """Check those lines of a head that have arrived so far.

    Raises:
        h11.RemoteProtocolError: another server might split the head into other lines.
    """
    head, _, _ = data.partition(HEAD_END)
    if BARE_LF.search(head) or FOLDED.search(head):
        raise h11.RemoteProtocolError("a line ends in a bare LF, or goes on in the next")


def is_chunked(head: h11.Request) -> bool:
    return any(name == b"transfer-encoding" for name, _ in head.headers)


def check_framing(head: h11.Request) -> None:
    """Check the headers that determine where the body ends.

    Raises:
        h11.RemoteProtocolError: another server might find the end of the body elsewhere.
    """
    has_length = any(name == b"content-length" for name, _ in head.headers)
    if head.http_version not in VERSIONS:
        raise h11.RemoteProtocolError("this is another version of HTTP")
    is_old = head.http_version == b"1.0"
    if is_old and head.method == b"POST" and not has_length:
        raise h11.RemoteProtocolError("without Content-Length, nobody knows where the body ends")
    if is_chunked(head) and (has_length or is_old):
        raise h11.RemoteProtocolError("nobody knows where the body ends")


def in_origin_form(head: h11.Request) -> h11.Request:
    """Return the head in the form that a client without a proxy sends.  [RFC 9112] 3.2.2

    In this form, an absolute target has become a path and a Host header.

    Raises:
        h11.RemoteProtocolError: the target is not valid.
    """
    if head.target.startswith(b"/") or head.target == b"*" or head.method == b"CONNECT":
        return head
    found = ABSOLUTE.fullmatch(head.target)
    if found is None:
        raise h11.RemoteProtocolError("the target is neither a path nor a URL of HTTP")
    path = found[2] or (b"*" if head.method == b"OPTIONS" else b"/")
    if path.startswith(b"?"):
        path = b"/" + path
    headers = [(b"host", found[1]), *(field for field in head.headers if field[0] != b"host")]
    return h11.Request(method=head.method, target=path, headers=headers, http_version=head.http_version)
