"""Producers that send messages over HTTP according to "Message Producer Rules", and may be as careless as real
producers.

Each sends its messages one after the other. It repeats each message, under the same id, until it gets a final answer:
200, or any status without Retry-After. Now and then a producer hangs up before the answer comes, or repeats a request
that was answered.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

import httpx
import trio

TIMEOUT_S: Final = 10.0
HURRY: Final = 0.03
"""The probability that a producer hangs up before it has its answer."""
DOUBT: Final = 0.03
"""The probability that a producer repeats a request after its final answer."""
HURRY_S: Final = (0.001, 0.02)
"""The range of times, in seconds, that a producer waits before it hangs up. Some of its requests then get through, and
some do not.
"""
PAUSE_LIMIT_S: Final = 0.25
"""The longest pause, in seconds, that a producer makes here, even if the gateway asks for a longer one."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message to send.

    queue: the queue's name, as in the URL.
    group: the group that the message's correlation id names, as a number; 0 for none.
    """

    key: str
    queue: str
    body: bytes
    label: str = ""
    group: int = 0
    content_type: str = ""


@dataclass(slots=True)
class Handover:
    """The outcomes of the messages that were handed to the gateway.

    accepted: the identifiers of accepted messages, keyed by the messages' keys, in the order of the answers.
    refused: the service codes of refused messages, keyed by the messages' keys.
    wrong: answers that break a promise, in words.
    """

    requests: int = 0
    retries: Counter[str] = field(default_factory=Counter)
    """The number of repeated requests, keyed by the reason why the previous answer was not final."""
    accepted: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)


class PostingProducer:
    """One producer.

    Args:
        url: the gateway's URL.
        handover: takes the outcome of each message; producers may share it.
        dice: decides when the producer is careless, that is, when it hangs up or repeats a request. Without dice, it is
            never careless.
    """

    def __init__(
        self,
        url: str,
        messages: list[Outgoing],
        handover: Handover,
        dice: random.Random | None = None,
    ) -> None:
        self._url = url
        self._messages = messages
        self._handover = handover
        self._dice = dice

    async def run(self) -> None:
        """Hand in all messages."""
        async with httpx.AsyncClient(base_url=self._url, timeout=TIMEOUT_S, trust_env=False) as client:
            for message in self._messages:
                while not await self._post(client, message):
                    pass
                if message.key in self._handover.accepted and self._happens(DOUBT):
                    while not await self._post(client, message):
                        pass

    def _happens(self, chance: float) -> bool:
        return self._dice is not None and self._dice.random() < chance

    async def _post(self, client: httpx.AsyncClient, message: Outgoing) -> bool:
        """Send one request. Return whether its answer is final."""
        handover = self._handover
        timeout_s = TIMEOUT_S
        if self._dice is not None and self._happens(HURRY):
            timeout_s = self._dice.uniform(*HURRY_S)
        headers = {
            "Idempotency-Key": message.key,
            "Content-Type": message.content_type,
            "MQ-Label": message.label,
            "MQ-Correlation-Id": f"{message.group:040x}",
        }
        handover.requests += 1
        try:
            answer = await client.post(
                f"/queues/{message.queue}/messages", content=message.body, headers=headers, timeout=timeout_s
            )
        except httpx.TimeoutException:
            handover.retries["hung up" if timeout_s < TIMEOUT_S else "no answer in time"] += 1
            return False
        except httpx.TransportError:
            handover.retries["no connection, or it broke"] += 1
            await trio.sleep(PAUSE_LIMIT_S)
            return False
        said = json.loads(answer.content)
        if answer.status_code == 200:
            first = handover.accepted.setdefault(message.key, said["id"])
            if first != said["id"]:
                handover.wrong.append(f"{message.key} was accepted as {first} and as {said['id']}")
            return True
        if "Retry-After" not in answer.headers:
            handover.refused[message.key] = said["code"]
            return True
        handover.retries[said["code"]] += 1
        await trio.sleep(min(PAUSE_LIMIT_S, float(answer.headers["Retry-After"])))
        return False
