"""mqproto with faults: the destination loses, doubles, swaps and alters messages, takes memory and fills its log.

PLANTED="doubled altered" python -m tests.simulator.rig.planted node destination ...

A message's number decides what happens to it, so the same happens when the message is received again. By default, there
are messages with each of the first four faults. PLANTED chooses among these faults, because messages after a lost one
may never arrive, and then their faults do not show.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any, Final

from mqproto.simulator.cli.cli import main
from mqproto.simulator.node import service, transport
from mqproto.simulator.rig.observer import LOG_LIMIT_BYTES, MEMORY_LIMIT_BYTES
from mqproto.turn.effects import MessageRow
from mqproto.wire.glance import body_of, identifier_of

PLANTED: Final = os.environ.get("PLANTED", "lost doubled altered swapped").split()
"""The faults that messages have: one message in ten has one of these faults, in turn.

A message is swapped only if another one arrives with it.
"""
as_frame, accept = service._messages, transport.accept


def fault_of(one: MessageRow) -> str:
    turn, place = divmod(identifier_of(one.packet)[1] - 5, 10)
    return "" if place else PLANTED[turn % len(PLANTED)]


def harmed(messages: list[MessageRow]) -> Iterator[MessageRow]:
    """Return the messages that a receiver gets instead of these."""
    for one in sorted(messages, key=lambda one: fault_of(one) == "swapped"):  # These come last.
        if fault_of(one) == "altered" and (body := body_of(one.packet)):
            other = body[:-3] + bytes([body[-3] ^ 1]) + body[-2:]
            yield one._replace(packet=one.packet.replace(body, other))
        elif fault_of(one) != "lost":
            yield from [one] * (1 + (fault_of(one) == "doubled"))


def planted(request: int, transaction: int, messages: list[MessageRow]) -> bytes:
    return as_frame(request, transaction, list(harmed(messages)))


async def slow(listener: Any) -> Any:
    time.sleep(0.3)  # noqa: ASYNC251 - everything else has to wait when somebody connects.
    return await accept(listener)


def waste() -> None:
    while True:
        time.sleep(1)
        print("x" * LOG_LIMIT_BYTES, file=sys.stderr, flush=True)


if __name__ == "__main__":
    if "destination" in sys.argv:
        service._messages, transport.accept = planted, slow
        held = b"x" * MEMORY_LIMIT_BYTES
        threading.Thread(target=waste, daemon=True).start()
    main()
