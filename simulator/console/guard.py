"""Checks permissions: only programs and pages on this machine that have a token are admitted.

The page itself is for anybody who can reach it, and contains no data. Other requests need a token in a header, which no
other page can set. So there are no cookies, and nothing that a browser would send by itself. A request to a foreign
name that resolves to this machine (DNS rebinding) is refused, whichever token it has.
"""

from __future__ import annotations

import hashlib
import ipaddress
import secrets
from http import HTTPStatus
from typing import Final

from mqproto.base.errors import UsageError
from mqproto.simulator.base.http.server import Request
from mqproto.simulator.edges.gateway.tokens import Opened, Opener, TokenHolder, TokenRole, Tokens

OWN: Final = "console"
"""The name of the token that a console makes for itself."""
TOKEN_BYTES: Final = 32
SAFE: Final = (
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("X-Frame-Options", "DENY"),
    ("Cache-Control", "no-store"),
)
"""The security headers of each answer."""


class Denied(Exception):  # noqa: N818
    """A request is refused."""

    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


class ConsoleGuard:
    """Knows the valid tokens: its own, which allows everything, and those in a file of `mqproto tokens`.

    Attributes:
        token: its own token, which is never logged or written to disk.
    """

    def __init__(self, others: Opener | None = None) -> None:
        self.token = secrets.token_urlsafe(TOKEN_BYTES)
        digest = hashlib.sha256(self.token.encode()).hexdigest()
        self._own = Tokens({OWN: TokenHolder(sha256=digest, queues=["*"], role=TokenRole.ALL)}, str)
        self._others = others

    def check_host(self, request: Request) -> None:
        """Check that a request was meant for this machine.

        Raises:
            Denied: it names another host, even if that name resolves to this machine.
        """
        hosts = request.header("Host")
        if len(hosts) != 1 or not is_here(hosts[0]):
            raise Denied(
                HTTPStatus.MISDIRECTED_REQUEST,
                "open the console by 127.0.0.1 or localhost, not by another name",
            )

    def check_origin(self, request: Request) -> None:
        """Check that a request does not come from another page.

        Raises:
            Denied: it does come from another page.
        """
        [host] = request.header("Host")
        strange = [origin for origin in request.header("Origin") if origin != f"http://{host}"]
        strange += [site for site in request.header("Sec-Fetch-Site") if site not in ("same-origin", "none")]
        if strange:
            raise Denied(HTTPStatus.FORBIDDEN, "other pages may not use the console")

    def opened(self, request: Request, needed: TokenRole) -> Opened:
        """Return the permissions of a request.

        Raises:
            Denied: its token is missing or unknown, opens only some queues, or lacks the needed role.
        """
        values = request.header("Authorization")
        scheme, _, token = (values[0] if len(values) == 1 else "").partition(" ")
        opened = None
        if scheme.casefold() == "bearer":
            opened = self._own.opened_by(token.strip())
            if opened is None and self._others is not None:
                opened = self._others.opened_by(token.strip())
        if opened is None:
            raise Denied(
                HTTPStatus.UNAUTHORIZED, "open the console by the address that it printed when it began"
            )
        if opened.queues is not None:
            raise Denied(
                HTTPStatus.FORBIDDEN,
                "this token opens single queues, and a console shows all: make one with --queue '*'",
            )
        if not opened.role.may(needed):
            raise Denied(
                HTTPStatus.FORBIDDEN,
                f"this needs a token with the role {needed} or {TokenRole.ALL}; yours has the role {opened.role}",
            )
        return opened


def is_here(host: str) -> bool:
    """Return whether a Host header refers to this machine.

    The port does not matter, because a tunnel may use another port.
    """
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    return name.casefold() == "localhost" or is_loopback(name.strip("[]"))


def is_loopback(host: str) -> bool:
    """Return whether a host is an address that only this machine itself can reach."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_address(host: str, port: int) -> None:
    """Check that a console may be served at this address.

    Raises:
        UsageError: others could reach the address.
    """
    if not is_loopback(host):
        raise UsageError(
            f"{host}:{port} can be reached from outside, and a console is for this machine: leave --listen out, "
            f"and reach it from elsewhere by ssh -L {port}:127.0.0.1:{port} HOST"
        )
