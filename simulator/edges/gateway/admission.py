"""What limits producers: the gateway's TLS, request rates, and memory for bodies."""

from __future__ import annotations

import ssl
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final

import trio

from mqproto.base.errors import UsageError
from mqproto.simulator.node.tls.certificates import show

ALPN: Final = ("http/1.1",)


def tls_of(certificate: Path | None, key: Path | None, clients: Path | None) -> ssl.SSLContext | None:
    """Return the TLS context with which a gateway serves clients; None if no options are given.

    Args:
        certificate, key: PEM files; the certificate's file also has its chain, without the root.
        clients: a PEM file of authorities; each client must have a certificate from one of them.

    Raises:
        UsageError: a file is missing or invalid, others can read the key, or an option requires another that is
            missing.
    """
    if certificate is None and key is None and clients is None:
        return None
    if certificate is None or key is None:
        raise UsageError("--tls-certificate and --tls-key belong together: type both")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.set_alpn_protocols(ALPN)
    show(context, certificate, key)
    if clients is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(clients)
        except OSError as error:
            why = "there is no certificate in it" if isinstance(error, ssl.SSLError) else error.strerror
            raise UsageError(f"{clients}: {why}; name a PEM file of authorities") from None
    return context


class Rate:
    """Limits the number of requests per second for each name. The requests of a second may all arrive at once.

    Args:
        per_s: the number of requests per second; more than 0.
        now_s: a clock.
    """

    def __init__(self, per_s: float, now_s: Callable[[], float] = trio.current_time) -> None:
        self.per_s = per_s
        self._burst = max(1.0, per_s)
        self._now_s = now_s
        self._full_at_s: dict[str, float] = {}
        """The time at which the bucket of each name will be full again.

        This one number also says how full the bucket is now.
        """

    def wait_s(self, name: str) -> float:
        """Take one request and return 0, or take none and return the seconds until one is available."""
        now_s = self._now_s()
        full_at_s = max(now_s, self._full_at_s.get(name, 0.0)) + 1 / self.per_s
        wait_s = full_at_s - now_s - self._burst / self.per_s
        if wait_s > 1e-9:
            return wait_s
        self._full_at_s[name] = full_at_s
        return 0.0


class Room:
    """Memory that many requests share.

    It is allocated in the order of the requests, so small ones do not starve a large one.

    Args:
        size_bytes: the total, which is also the limit for one request.
    """

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.free_bytes = size_bytes
        self._waiting: deque[tuple[int, trio.Event]] = deque()

    async def take(self, size_bytes: int, patience_s: float) -> bool:
        """Take memory; return whether enough became free in time."""
        assert size_bytes <= self.size_bytes, "more can never be had"
        if not self._waiting and size_bytes <= self.free_bytes:
            self.free_bytes -= size_bytes
            return True
        place = size_bytes, trio.Event()
        self._waiting.append(place)
        with trio.move_on_after(patience_s):
            try:
                await place[1].wait()
            except trio.Cancelled:
                # It may have been given after the wait was given up, and before we heard of that.
                if place[1].is_set():
                    self.give_back(size_bytes)
                else:
                    self._waiting.remove(place)
                    self._hand_out()
                raise
            return True
        return False

    def give_back(self, size_bytes: int) -> None:
        """Free memory that was taken."""
        self.free_bytes += size_bytes
        self._hand_out()

    def _hand_out(self) -> None:
        while self._waiting and self._waiting[0][0] <= self.free_bytes:
            size_bytes, given = self._waiting.popleft()
            self.free_bytes -= size_bytes
            given.set()
