"""Others' servers of which none runs: they say what they were asked for, and how long it took."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, cast

import trio

from tests.bench.load.row import CLIENT, THREE, Flow
from tests.bench.measures import beside


class Others:
    """A chain of them.

    asked: with what, in order.
    """

    def __init__(self) -> None:
        self.asked: list[tuple[float, ...]] = []

    async def flood(self, count: int, body_bytes: int, window: int) -> Flow:
        """As chains have it."""
        return await self._took(count, body_bytes, window)

    async def pace(self, count: int, per_s: float, body_bytes: int) -> Flow:
        """The same."""
        return await self._took(count, per_s, body_bytes)

    async def _took(self, count: int, *others: float) -> Flow:
        await trio.lowlevel.checkpoint()
        self.asked.append((count, *others))
        return Flow(count, 1.0, 1.0, dict.fromkeys((*THREE, CLIENT), count / 1_000), {}, [1.0, 2.0, 3.0])


def others_of(chain: Others) -> Callable[..., AbstractAsyncContextManager[beside.Others]]:
    """In the place of `started`."""

    @asynccontextmanager
    async def started(*_: object) -> AsyncIterator[beside.Others]:
        yield beside.Others({"others": cast(Any, chain)}, {"others": "perhaps"}, ["of the others"])

    return started
