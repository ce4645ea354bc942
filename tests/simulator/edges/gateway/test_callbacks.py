from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

from mqproto.edge.exactlyonce import Attempt, Entry
from mqproto.simulator.edges.gateway.callbacks import About, Callbacks, armed
from mqproto.simulator.edges.gateway.confirmations import ENDS
from mqproto.simulator.edges.history.history import DocumentHistory, Hook, open_history
from mqproto.simulator.edges.trigger.hooks import Hooks

QUEUE, KEY, MESSAGE, URL = r"destination\orders", "shop/order-1", "message 1", "http://shop.example/ends"
ACCEPTED = json.dumps({"id": MESSAGE, "fingerprint": ""}).encode()
RECEIVED = json.dumps({"message_class": "ACK_RECEIVE", "time_s": 0}).encode()


class Outbox:
    """What is to be told, as `Hooks` has it."""

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []

    async def tell(self, hook: Hook) -> None:
        assert hook.url == URL
        self.told.append(json.loads(hook.body))


async def the_gateway_tells_that_it_was_accepted(history: DocumentHistory, callbacks: Callbacks) -> None:
    """It looks afterwards whether the end is known."""
    await history.finish(f"gateway/{QUEUE}", KEY, Attempt.SUCCEEDED, ACCEPTED)
    if (await history.look(ENDS, MESSAGE)).entry is not Entry.ABSENT:
        await callbacks.ended(MESSAGE)


async def a_confirmation_comes(history: DocumentHistory, callbacks: Callbacks) -> None:
    await history.finish(ENDS, MESSAGE, Attempt.SUCCEEDED, RECEIVED)
    await callbacks.ended(MESSAGE)


STEPS = (the_gateway_tells_that_it_was_accepted, a_confirmation_comes)


@pytest.mark.parametrize("steps", [STEPS, STEPS[::-1]])
async def test_an_end_is_told_whichever_the_history_hears_of_first(tmp_path: Path, steps: Any) -> None:
    outbox = Outbox()
    async with open_history(f"sqlite:///{tmp_path}/history.sqlite") as history:
        callbacks = Callbacks(history, cast(Hooks, outbox))
        await history.begin(f"gateway/{QUEUE}", KEY, "gateway")
        await history.arm("gateway", armed(MESSAGE, About(QUEUE, KEY, "order-1"), URL))
        for step in steps:
            assert not outbox.told
            await step(history, callbacks)
    [told] = outbox.told
    assert (told["id"], told["message"], told["state"]) == ("order-1", MESSAGE, "received")
