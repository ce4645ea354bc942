"""Reports over HTTP how messages ended.

A trigger reports the ends of all its messages, and a gateway those that producers ask for. Each report is a `Trail`.
A trigger's is in the outbox of the document history (simulator/edges/history/outbox.py) before its message leaves the
queue, so it outlives the program that sends it. A gateway's is owed by the row of its message (gateway/callbacks.py).

A report is a JSON object, which is posted once if possible, by the rules for consumers. 200 to 299 means that it is
delivered; a service code or a problem means that it is given up. After anything else it is posted again, with growing
pauses, for about two days. Each attempt has the same webhook-id, so receivers can drop duplicates. If there are
secrets, it is signed by the rules of Standard Webhooks.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from typing import Final, Protocol

import httpx
import msgspec
import trio
from structlog.typing import FilteringBoundLogger

from mqproto.base.errors import UsageError
from mqproto.edge.custody import State
from mqproto.edge.exactlyonce import Attempt
from mqproto.simulator.edges.history.forgetting import LEAP_S
from mqproto.simulator.edges.history.history import DocumentHistory, HistoryError, Hook
from mqproto.simulator.edges.history.outbox import OutboxWork
from mqproto.simulator.edges.httpclient import PORTS, HttpClient, HttpError
from mqproto.simulator.edges.options import Retries
from mqproto.simulator.edges.trail import Trail
from mqproto.simulator.edges.trigger.callee import (
    Answer,
    Call,
    in_words,
    meaning,
    posted,
    system_error,
    url_of_http,
)
from mqproto.simulator.edges.trigger.judgment import Ending, TriggerEvent
from mqproto.simulator.edges.trigger.signing import signed

CALLBACK: Final = "MQ-Callback"
CALLBACK_TEXT: Final = "a URL that is told when the message has ended; the operator says which hosts may be"
RETRIES: Final = Retries(interval_s=5, factor=4, limit_s=6 * 3_600, attempts=16, jitter=0.1)
"""The delays between attempts: 5 s, 20 s, 80 s, ... up to six hours, about two and a half days in total."""
TIMEOUT_S: Final = 30.0
TOGETHER: Final = 8
"""The number of reports sent at the same time, so that a slow receiver delays only a few others."""
AGAIN_S: Final = 1.0
"""The number of seconds until an unavailable history is tried again."""
URL_LIMIT: Final = 2_048
HOST: Final = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*(:[0-9]{1,5})?")


STATES: Final = {
    TriggerEvent.COMMITTED: State.PROCESSED,
    TriggerEvent.DUPLICATE_DROPPED: State.PROCESSED,
    TriggerEvent.IN_DOUBT: State.IN_DOUBT,
    TriggerEvent.DEAD_LETTERED: State.FAILED,
    TriggerEvent.RETRIEVAL_FAILURE: State.FAILED,
}
"""The states in which messages end at a trigger, keyed by the event."""


# What is told


def end_of(call: Call, ending: Ending, queue: str, copy_in: str) -> Trail | None:
    """Return the report about a message after its trigger's decision; None if the message has not ended.

    Args:
        copy_in: the queue that gets a copy if one is made.
    """
    state = STATES.get(ending.waypoint)
    if state is None or (ending.waypoint is TriggerEvent.DUPLICATE_DROPPED and call.delivery_count == 1):
        # Delivered again it was processed, and somebody died before that was told.
        return None
    return Trail(
        call.key,
        queue,
        state=state,
        message=call.message,
        ended=datetime.fromtimestamp(int(time.time()), UTC),
        attempts=ending.attempt,
        failure=ending.failure if state is State.FAILED else "",
        reason=ending.reason if ending.failure else "",
        copy_in=copy_in if ending.failure else "",
    )


def name_of(message: str) -> str:
    """Return the name under which the outbox has the report to a URL about the end of a message."""
    return f"{message}/ended"


# Who may be told


@dataclass(frozen=True, slots=True)
class Offer:
    """The URLs that may be called.

    Producers are not trusted, and the gateway can reach hosts that they cannot reach.

    hosts: the hosts that producers may name, as `HOST`, for the default port of the URL's scheme, or as `HOST:PORT`;
        None if producers may not name any.
    url: the URL that gets reports about messages whose producers name no URL; empty for none.
    """

    hosts: frozenset[str] | None = frozenset()
    url: str = ""

    @classmethod
    def of(cls, names: Iterable[str], url: str) -> Offer:
        """Return the URLs that an operator has permitted on the command line.

        Raises:
            UsageError: a name is not a host, or the URL is not valid.
        """
        hosts = {name.casefold() for name in names}
        for host in hosts:
            if not HOST.fullmatch(host):
                raise UsageError(f"{host!a} is not a host: write shop.example, or shop.example:8443")
        if url:
            url_of_http(url)
        return cls(frozenset(hosts), url)

    def __bool__(self) -> bool:
        return bool(self.hosts or self.url)

    def check(self, url: str) -> None:
        """Check that a producer may name this URL.

        Raises:
            UsageError: the producer may not name it, or it is not a valid URL.
        """
        if len(url) > URL_LIMIT or not (url.isascii() and url.isprintable()):
            raise UsageError(f"a URL has up to {URL_LIMIT:,} characters of printable ASCII")
        parsed = url_of_http(url)
        if parsed.userinfo or parsed.fragment:
            raise UsageError("the URL of a callback has no user, password or fragment")
        port = parsed.port or PORTS[parsed.scheme]
        named = {parsed.host} if port == PORTS[parsed.scheme] else set()
        if not (named | {f"{parsed.host}:{port}"}) & (self.hosts or frozenset()):
            raise UsageError(f"{parsed.host}:{port} is not a host that callbacks go to here")

    def chosen(self, asked: str, key: str, admin_queue: str) -> str:
        """Return the URL that gets the report about a message; empty for none.

        Args:
            asked: the URL that the message's producer names; empty for none.

        Raises:
            UsageError: the URL is not permitted or not possible.
        """
        if not asked:
            return self.url if key and not admin_queue else ""
        self.check(asked)
        if not key:
            raise UsageError(f"{CALLBACK} tells about a message by its id: give it one")
        if admin_queue:
            raise UsageError(
                f"{CALLBACK}: what an administration queue hears, the gateway does not: leave one out"
            )
        return asked


# Telling


class Reports(Protocol):
    """Has the reports of one sender.

    news: set when a report may have become due since the last call of `due`.
    """

    news: trio.Event

    async def due(self, limit: int) -> OutboxWork:
        """Return the reports to send now, at most `limit`."""

    async def attempted(self, name: str, *, has_heard: bool, again_s: float | None = None) -> None:
        """Record an attempt to send a report; again_s is None if it was the last."""


class HistoryOutbox:
    """The reports of one sender in a document history.

    Args:
        sender: the sender's name in the history, which stays the same across restarts. No two running senders have the
            same name.
        url: the operator's URL.
    """

    def __init__(self, history: DocumentHistory, sender: str, url: str) -> None:
        self._history, self._sender, self._url = history, sender, url
        self.news = trio.Event()
        self.attempted = history.attempted

    async def due(self, limit: int) -> OutboxWork:
        """Do what `Reports.due` promises."""
        self.news = trio.Event()
        return await self._history.due(self._sender, limit)

    async def tell(self, end: Trail, epoch: int = 0) -> None:
        """Report an end to the operator's URL. When this returns, the report is stored.

        Args:
            epoch: the epoch of the leader that makes the report; the sender is that leader's scope. 0 for none.

        Raises:
            HistoryError, FencedError: the report is not stored.
        """
        body = msgspec.json.encode(end)
        await self._history.tell(Hook(f"{end.message}/{end.state}", self._sender, self._url, body), epoch)
        self.news.set()


class Teller:
    """Delivers the reports of one sender from the outbox.

    Args:
        outbox: has the reports.
        offer: the permitted URLs; even stored reports are sent only to its `url` and its hosts.
        secrets: the secrets; every report is signed with each of them.
    """

    def __init__(
        self,
        outbox: Reports,
        client: HttpClient,
        log: FilteringBoundLogger,
        offer: Offer,
        secrets: tuple[bytes, ...] = (),
        retries: Retries = RETRIES,
    ) -> None:
        self._outbox = outbox
        self._client = client
        self._log = log
        self._offer = offer
        self._secrets = secrets
        self._retries = retries
        self.counts = dict.fromkeys(("told", "not-told", "given-up"), 0)
        """The number of attempts with each outcome, keyed by the log's word for it."""

    async def run(self) -> None:
        """Deliver due reports until cancelled; an interrupted delivery is repeated later."""
        while True:
            trouble = ""
            try:
                due, wait_s = await self._outbox.due(TOGETHER)
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
            # Whoever looks more seldom than that has the history's time stand still in between.
            with trio.move_on_after(inf if wait_s is None else min(wait_s, LEAP_S / 2)):
                await self._outbox.news.wait()

    async def _tell(self, hook: Hook) -> None:
        answer = await self._answer(hook)
        log = self._log.bind(hook=hook.id, url=hook.url, attempt=hook.attempts + 1)
        if answer.attempt is Attempt.SUCCEEDED:
            await self._outbox.attempted(hook.id, has_heard=True)
            log.info(self._counted("told"))
        elif answer.attempt is Attempt.FAILED_FOR_GOOD or hook.attempts + 1 >= self._retries.attempts:
            await self._outbox.attempted(hook.id, has_heard=False)
            log.error(self._counted("given-up"), reason=answer.reason)
        else:
            delay_s = max(self._retries.delay_s(hook.attempts + 1, hook.id), answer.retry_after_s)
            await self._outbox.attempted(hook.id, has_heard=False, again_s=delay_s)
            log.warning(self._counted("not-told"), reason=answer.reason, next_try_s=round(delay_s, 3))

    def _counted(self, outcome: str) -> str:
        self.counts[outcome] += 1
        return outcome

    async def _answer(self, hook: Hook) -> Answer:
        try:
            if self._offer.hosts is not None and hook.url != self._offer.url:
                self._offer.check(hook.url)
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


class HistoryTeller(Teller):
    """Delivers the reports of one sender in a document history.

    Args:
        history, sender: see HistoryOutbox.
    """

    def __init__(
        self,
        history: DocumentHistory,
        sender: str,
        client: HttpClient,
        log: FilteringBoundLogger,
        offer: Offer,
        secrets: tuple[bytes, ...] = (),
        retries: Retries = RETRIES,
    ) -> None:
        outbox = HistoryOutbox(history, sender, offer.url)
        super().__init__(outbox, client, log, offer, secrets, retries)
        self.tell = outbox.tell
