"""Hooks: somebody is told by HTTP how a message ended, as a trigger sees it or a gateway.

What is to be told is in the outbox of the document history (simulator/edges/history/outbox.py) before the message
leaves its queue, so it outlives whoever tells it. It is a JSON object, posted once if it can be had, by the rules that
hold for consumers: 200 to 299, and somebody has heard it; a service code or a problem, and he never will; anything
else, and he is told again after pauses that grow, for some two days. Each attempt has the same webhook-id, by which he
drops what he has heard. With secrets it is signed as Standard Webhooks have it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from typing import Final

import httpx
import msgspec
import trio
from structlog.typing import FilteringBoundLogger

from mqproto.base.errors import UsageError
from mqproto.edge.exactlyonce import Attempt
from mqproto.simulator.edges.history.history import DocumentHistory, HistoryError, Hook
from mqproto.simulator.edges.httpclient import HttpClient, HttpError
from mqproto.simulator.edges.trigger.callee import (
    Answer,
    Call,
    in_words,
    meaning,
    posted,
    system_error,
    url_of_http,
)
from mqproto.simulator.edges.trigger.judgment import IN_DOUBT, Ending, Waypoint
from mqproto.simulator.edges.trigger.policy import Retries
from mqproto.simulator.edges.trigger.signing import signed

RETRIES: Final = Retries(interval_s=5, factor=4, limit_s=6 * 3_600, attempts=16, jitter=0.1)
"""5 s, 20 s, 80 s, ... six hours: some two and a half days in all."""
TIMEOUT_S: Final = 30.0
TOGETHER: Final = 8
"""How many are told at once; one that is slow holds up few others."""
AGAIN_S: Final = 1.0
"""Before a history that is away is asked once more."""
URL_LIMIT: Final = 2_048
HOST: Final = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*(:[0-9]{1,5})?")
PORTS: Final = {"http": 80, "https": 443}


class End(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    r"""How a message ended for its trigger; the names are those of what a gateway says of a message.

    id: the producer's, else the message's identifier.
    queue: such as `destination\orders`.
    state: `processed`, `failed`, or `in-doubt`.
    failure: `business error`, or `retrieval failure`.
    reason: what the consumer said.
    copy_in: the queue that has a copy of it.
    """

    id: str
    queue: str
    state: str
    message: str
    ended: datetime
    attempts: int
    failure: str = ""
    reason: str = ""
    copy_in: str = ""


def end_of(call: Call, ending: Ending, queue: str, copy_in: str) -> End | None:
    """What is told of a message; None if it has not ended."""
    state = "failed"
    match ending.waypoint:
        case Waypoint.COMMITTED:
            state = "processed"
        case Waypoint.DUPLICATE_DROPPED if call.delivery_count != 1:
            # It was processed, and is delivered again as somebody died before that was told.
            state = "processed"
        case Waypoint.IN_DOUBT:
            state = "in-doubt"
        case Waypoint.DEAD_LETTERED | Waypoint.RETRIEVAL_FAILURE:
            pass
        case _:
            return None
    is_failed = state == "failed"
    return End(
        id=call.key,
        queue=queue,
        state=state,
        message=call.message,
        ended=datetime.fromtimestamp(int(time.time()), UTC),
        attempts=ending.attempt,
        failure=ending.failure if is_failed else "",
        reason=ending.reason if is_failed or ending.failure == IN_DOUBT else "",
        copy_in=copy_in,
    )


@dataclass(frozen=True, slots=True)
class AllowedHosts:
    """Where a producer may have somebody told: he is a stranger, and the gateway can reach what he cannot.

    hosts: `HOST`, for the port that its scheme has, or `HOST:PORT`; empty for none.
    """

    hosts: frozenset[str] = frozenset()

    @classmethod
    def of(cls, names: Iterable[str]) -> AllowedHosts:
        """Those that an operator has named.

        Raises:
            UsageError: one is no host.
        """
        hosts = {name.casefold() for name in names}
        for host in hosts:
            if not HOST.fullmatch(host):
                raise UsageError(f"{host!a} is no host: write shop.example, or shop.example:8443")
        return cls(frozenset(hosts))

    def check(self, url: str) -> None:
        """See that a URL is one of these.

        Raises:
            UsageError: it is not, or it is none.
        """
        if len(url) > URL_LIMIT or not (url.isascii() and url.isprintable()):
            raise UsageError(f"a URL has up to {URL_LIMIT:,} characters of printable ASCII")
        parsed = url_of_http(url)
        if parsed.userinfo or parsed.fragment:
            raise UsageError("the URL of a callback has no user, password or fragment")
        port = parsed.port or PORTS[parsed.scheme]
        named = {parsed.host} if port == PORTS[parsed.scheme] else set()
        if not (named | {f"{parsed.host}:{port}"}) & self.hosts:
            raise UsageError(f"{parsed.host}:{port} is no host that callbacks go to here")


class Hooks:
    """Tells what the outbox has, of one sender.

    Args:
        sender: names it in the history, over its restarts; no two that run have the same name.
        may_tell: raises UsageError for a URL that nobody is told at any more.
        secrets: what is told is signed with each of them.
    """

    def __init__(
        self,
        history: DocumentHistory,
        sender: str,
        client: HttpClient,
        log: FilteringBoundLogger,
        may_tell: Callable[[str], None] = lambda url: None,
        secrets: tuple[bytes, ...] = (),
        retries: Retries = RETRIES,
    ) -> None:
        self.sender = sender
        self._history = history
        self._client = client
        self._log = log
        self._may_tell = may_tell
        self._secrets = secrets
        self._retries = retries
        self.counts = dict.fromkeys(("told", "not-told", "given-up"), 0)
        """What came of attempts, as the log calls it."""
        self._news = trio.Event()

    def wake(self) -> None:
        """There may be more to tell."""
        self._news.set()

    async def tell(self, hook: Hook, scope: str = "", epoch: int = 0) -> None:
        """Have it told, once it is kept.

        Raises:
            HistoryError, FencedError: it is not kept.
        """
        await self._history.tell(self.sender, hook, scope, epoch)
        self.wake()

    async def run(self) -> None:
        """Tell what is due, as long as it is not cancelled; what is cut off by that is told again."""
        while True:
            self._news, trouble = trio.Event(), ""
            try:
                due, next_s = await self._history.due(self.sender, TOGETHER)
                async with trio.open_nursery() as nursery:
                    for hook in due:
                        nursery.start_soon(self._tell, hook)
            except* HistoryError as errors:
                trouble = str(errors.exceptions[0])
            if trouble:
                self._log.warning("untold", reason=trouble)
                await trio.sleep(AGAIN_S)
                continue
            if due:
                continue
            wait_s = next_s - time.time() if next_s is not None else inf
            with trio.move_on_after(max(wait_s, 0)):
                await self._news.wait()

    async def _tell(self, hook: Hook) -> None:
        answer = await self._answer(hook)
        log = self._log.bind(hook=hook.id, url=hook.url, attempt=hook.attempts + 1)
        if answer.attempt is Attempt.SUCCEEDED:
            await self._history.attempted(hook.id, has_heard=True)
            log.info(self._counted("told"))
        elif answer.attempt is Attempt.FAILED_FOR_GOOD or hook.attempts + 1 >= self._retries.attempts:
            await self._history.attempted(hook.id, has_heard=False)
            log.error(self._counted("given-up"), reason=answer.reason)
        else:
            delay_s = max(self._retries.delay_s(hook.attempts + 1, hook.id), answer.retry_after_s)
            await self._history.attempted(hook.id, has_heard=False, due_s=time.time() + delay_s)
            log.warning(self._counted("not-told"), reason=answer.reason, next_try_s=round(delay_s, 3))

    def _counted(self, outcome: str) -> str:
        self.counts[outcome] += 1
        return outcome

    async def _answer(self, hook: Hook) -> Answer:
        try:
            self._may_tell(hook.url)
        except UsageError as error:
            return Answer(Attempt.FAILED_FOR_GOOD, str(error))
        headers = {"Content-Type": "application/json", "webhook-id": hook.id.replace(".", "%2E")}
        headers |= signed(self._secrets, hook.id, int(time.time()), hook.body)
        with trio.move_on_after(TIMEOUT_S):
            try:
                return meaning(await posted(self._client, httpx.URL(hook.url), hook.body, headers))
            except HttpError as error:
                return system_error(in_words(error))
        return system_error(f"no answer within {TIMEOUT_S:g} s")


class EndHook:
    """Tells one URL of all ends that a trigger sees.

    Args:
        hooks: tell it; they run while the trigger leads.
        queue: such as `destination\\orders`.
        scope: names it in the history.
    """

    def __init__(self, hooks: Hooks, url: str, queue: str, scope: str) -> None:
        self.hooks = hooks
        self._url = url
        self._queue = queue
        self._scope = scope

    async def ended(self, call: Call, ending: Ending, copy_in: str, epoch: int) -> None:
        """Keep that it is to be told, if this is an end.

        Raises:
            HistoryError, FencedError: it is not kept.
        """
        end = end_of(call, ending, self._queue, copy_in)
        if end is not None:
            hook = Hook(f"{end.message}/{end.state}", self._url, msgspec.json.encode(end))
            await self.hooks.tell(hook, self._scope, epoch)
