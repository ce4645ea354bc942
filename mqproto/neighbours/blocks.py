"""Hosts and networks that an operator has blocked, so that connections from there get no answer.

A block survives restarts, as a paused queue does: it is a row of a special kind in the store's queues.
"""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv6Network, ip_network
from typing import Final

from mqproto.base.errors import UsageError
from mqproto.routing.peers import HOST_BITS_V6, address_of, comes_from, host_group
from mqproto.turn.effects import QueueKind, QueueRow, StoredState
from mqproto.turn.pending import PendingWrites

BLOCKS: Final = 256
"""The maximum number of hosts and networks that may be blocked at a time. A network of any size counts as one."""


class Blocks:
    """The hosts and networks that are blocked."""

    def __init__(self, state: StoredState, writes: PendingWrites, next_number: Callable[[], int]) -> None:
        self._writes = writes
        self._next_number = next_number
        rows = [stored for stored in state.queues if stored.kind is QueueKind.BLOCKED]
        self._numbers = {stored.name: stored.queue for stored in rows}
        """The numbers of the rows, by network. Rows that no longer block a network are reused."""
        self.networks = tuple(stored.name for stored in rows if stored.on_hold)
        """The blocked networks, in the order in which they were blocked.

        After a restart, they are in the order of their rows, and a row may have been reused.
        """

    def covers(self, host: str) -> bool:
        """Whether connections from a host get no answer."""
        return bool(self.networks) and comes_from(str(address_of(host) or host), self.networks)

    def block(self, network: str) -> None:
        """Block a network; blocking it again changes nothing.

        Args:
            network: the network in the form that `network_of` returns.

        Raises:
            UsageError: too many networks are blocked.
        """
        if network in self.networks:
            return
        if len(self.networks) >= BLOCKS:
            raise UsageError(
                f"{BLOCKS} hosts and networks are blocked: unblock some, or block a wider network"
            )
        if network not in self._numbers:
            free = next((name for name in self._numbers if name not in self.networks), None)
            self._numbers[network] = self._next_number() if free is None else self._numbers.pop(free)
        self.networks += (network,)
        self._write(network, is_blocked=True)

    def unblock(self, network: str) -> None:
        """Answer connections from a network again.

        Raises:
            UsageError: the network is not blocked.
        """
        if network not in self.networks:
            known = ", ".join(self.networks) or "none"
            raise UsageError(f"{network} is not blocked; blocked are: {known}")
        self.networks = tuple(one for one in self.networks if one != network)
        self._write(network, is_blocked=False)

    def _write(self, network: str, *, is_blocked: bool) -> None:
        row = QueueRow(self._numbers[network], QueueKind.BLOCKED, network, on_hold=is_blocked)
        self._writes.urgent().queues.append(row)


def network_of(text: str) -> str:
    """Return the network to block for a text with an address or a network.

    It is at least a whole host, which in IPv6 is a /64.

    Raises:
        UsageError: the text is neither an address nor a network.
    """
    address = address_of(text)
    if address is not None:
        return host_group(text)
    try:
        network = ip_network(text)
    except ValueError as error:
        raise UsageError(f"{text!r}: {error}; write an address, or a network as 10.0.0.0/8") from None
    if isinstance(network, IPv6Network):
        return str(network.supernet(new_prefix=min(network.prefixlen, HOST_BITS_V6)))
    return str(network.network_address) if network.prefixlen == network.max_prefixlen else str(network)


def overlap(network: str, origin: str) -> bool:
    """Return whether a network and an origin have an address in common.

    An origin that is a name or `any` has none in common with it.
    """
    try:
        one, other = ip_network(network), ip_network(origin)
    except ValueError:
        return False
    if one.version != other.version:
        return False
    return one.network_address in other or other.network_address in one
