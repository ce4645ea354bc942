from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

from mqproto.edge.exactlyonce import Attempt
from simulator.edges.gateway.callbacks import About, Callbacks, armed
from simulator.edges.gateway.confirmations import ENDS
from simulator.edges.history.history import DocumentHistory, Hook, open_history
from simulator.edges.trigger.hooks import Hooks

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


async def is_accepted(history: DocumentHistory) -> None:
    await history.finish(f"gateway/{QUEUE}", KEY, Attempt.SUCCEEDED, ACCEPTED)


async def has_ended(history: DocumentHistory) -> None:
    await history.finish(ENDS, MESSAGE, Attempt.SUCCEEDED, RECEIVED)


@pytest.mark.parametrize("first", [is_accepted, has_ended])
async def test_an_end_is_told_whichever_the_history_hears_of_first(tmp_path: Path, first: Any) -> None:
    outbox = Outbox()
    async with open_history(f"sqlite:///{tmp_path}/history.sqlite") as history:
        callbacks = Callbacks(history, cast(Hooks, outbox))
        await history.begin(f"gateway/{QUEUE}", KEY, "gateway")
        await history.arm("gateway", armed(MESSAGE, About(QUEUE, KEY, "order-1"), URL))
        for step in (first, has_ended if first is is_accepted else is_accepted):
            assert not outbox.told
            await step(history)
            if step is not is_accepted or first is has_ended:
                await callbacks.ended(MESSAGE)
    [told] = outbox.told
    assert (told["id"], told["message"], told["state"]) == ("order-1", MESSAGE, "received")
