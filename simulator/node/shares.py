"""Limits the time that a node spends on strangers. Together they get a share of it, and each host gets an equal part of
that share.

Peers that are unknown, or have not yet said who they are, are read in small pieces. The cost of a piece, up to the
completion of its batch, is charged to the account of its host. The host is read again when the account is paid off.
Known queue managers and applications have no account.

The connections of a host are served in the order in which they come. Each waits only for the debt at its arrival, and
not for later charges. Otherwise a connection could wait for as long as new ones are made.
"""

from __future__ import annotations

from typing import Final

import trio

from mqproto.routing.peers import host_group

PIECE_BYTES: Final = 16 * 1024
"""The number of bytes that are read from a stranger at a time. Meanwhile, all other peers wait, for about 3 ms if the
messages are small.
"""
DEBT_LIMIT_S: Final = 1.0
"""The longest time, in seconds, that a host may have to wait. Beyond it, the host gets no further connection, unless a
known peer may be there.
"""
ACCOUNTS: Final = 4_096
"""The number of hosts that have an account of their own. All further hosts share one account."""
OTHERS: Final = "other hosts"


class Shares:
    """The accounts of hosts. A host is an IPv4 address or an IPv6 /64.

    Args:
        percent: the share of time for all strangers together, more than 0.
    """

    def __init__(self, percent: float) -> None:
        self._share = percent / 100
        self._paid_at: dict[str, float] = {}
        """The time at which each host's debt is paid off, on trio's clock; not sorted by time."""
        self._looked_at = 0.0

    def debt_s(self, host: str) -> float:
        """Return the number of seconds until a host's debt is paid off, or 0 if there is no debt."""
        return max(0.0, self._paid_at.get(self._account(host), 0.0) - trio.current_time())

    async def turn(self, host: str) -> None:
        """Wait until a host may be read again. If it has no debt, there is no checkpoint.

        The time when everything is paid off only moves forward, so a later connection is never read earlier. While one
        of n connections waits, each of the others is read at most once. So a host owes at most the cost of n pieces and
        of its new connections.
        """
        paid_at = self._paid_at.get(self._account(host), 0.0)
        if paid_at > trio.current_time():
            await trio.sleep_until(paid_at)

    def took(self, host: str, cost_s: float) -> None:
        """Charge a host for this much of the node's time."""
        now = trio.current_time()
        if now - self._looked_at >= DEBT_LIMIT_S:
            self._looked_at = now
            self._paid_at = {host: paid for host, paid in self._paid_at.items() if paid > now}
        account = self._account(host)
        paid_at = max(now, self._paid_at.get(account, now))
        self._paid_at[account] = paid_at  # It is one of the hosts that share.
        self._paid_at[account] += cost_s * len(self._paid_at) / self._share

    def _account(self, host: str) -> str:
        account = host_group(host)
        return account if account in self._paid_at or len(self._paid_at) < ACCOUNTS else OTHERS
