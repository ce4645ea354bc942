"""`mqproto queue create --like`, which makes a queue with the properties of another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from mqproto.base.errors import UsageError
from mqproto.simulator.client.live import as_it_is, host_of
from mqproto.simulator.topology import DeclaredQueue
from mqproto.simulator.topology.places import Place
from mqproto.simulator.topology.resolve import is_bare

if TYPE_CHECKING:
    from mqproto.simulator.client.client import MadeOptions


OWN: Final = ("transactional", "quota_kb", "journal", "journal_quota_kb", "strangers")


async def model_for(place: Place, node: str | None, queue: str) -> tuple[str, DeclaredQueue]:
    """Return the node of the model queue, and the queue as it is now.

    Args:
        node: the queue's node if the queue's name does not include it; None if only one node has a queue of this name.

    Raises:
        FormatNameError, TopologyError, UsageError: there is no such queue.
    """
    host = await host_of(place, node if is_bare(queue) else None, queue)
    place = await as_it_is(place, at=host)
    found = place.topology.resolve(f"{host}\\{queue}" if is_bare(queue) else queue).queue
    if found is None:
        raise UsageError(
            f"--like {queue}: the system has made it; name a queue that mqproto queue list shows"
        )
    return host, found


def like(model: DeclaredQueue, typed: MadeOptions) -> MadeOptions:
    """Return the given options, completed with the model queue's properties except its number and GUIDs."""
    protection = model.protection
    found: dict[str, object] = {name: getattr(model, name) for name in OWN}
    found |= {"authenticated": protection.authenticated, "privacy": protection.privacy}
    found |= {"weak_ciphers": list(protection.weak_ciphers), "senders": list(protection.senders)}
    if typed.get("journal") is False:
        del found["journal_quota_kb"]
    said = {name: value for name, value in typed.items() if value is not None}
    return cast("MadeOptions", found | said)
