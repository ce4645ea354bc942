"""Bearer tokens of a gateway: their holders, their permissions, and the file with their hashes.

    [shop]
    sha256 = "9b1f..."
    role = "send"
    queues = ["orders", "notes"]
    made = 2026-11-26T21:04:00Z

    [shop-until-june]           # another token of the same producer, while the first is replaced
    sha256 = "77b0..."
    role = "send"
    queues = ["orders", "notes"]
    producer = "shop"

`mqproto tokens` writes this file, which does not contain the tokens themselves. Each token has 256 random bits, so
nobody can guess it. Passwords need a deliberately slow hash, because people choose them. For a token, a slow hash would
add no protection, but would slow down each request. A queue is closed if no token opens it.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import tomllib
from collections.abc import Callable, Collection
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final, NamedTuple, Protocol

import msgspec
from structlog.typing import FilteringBoundLogger

from mqproto.base.errors import UsageError
from mqproto.simulator.edges.secretfile import read_secret

PRODUCER: Final = re.compile(r"[A-Za-z0-9._-]{0,64}")
"""The pattern of the name of a producer that has its own ids.

No name contains the separator between name and id.
"""
EVERY: Final = "*"
"""The word that stands for every queue. No queue can have this name.  [MS-MQMQ] 2.1.1"""


class TokenRole(StrEnum):
    """What a token permits in its queues."""

    READ = "read"
    """The holder may ask about the outcomes of messages."""
    SEND = "send"
    """The holder may send messages."""
    ALL = "all"

    def may(self, needed: TokenRole) -> bool:
        """Return whether this role permits what the needed role permits."""
        return self in (TokenRole.ALL, needed)


class Opened(NamedTuple):
    """What a request is permitted to do.

    producer: the producer whose ids it uses; empty for the ids that all producers without a token share.
    queues: the names of the queues that it may reach; None for all.
    holder: the name of its token; empty for none.
    """

    producer: str = ""
    queues: Collection[str] | None = None
    role: TokenRole = TokenRole.ALL
    holder: str = ""

    def whole(self, key: str) -> str:
        """Return a producer's id in the form used outside the gateway, which is unique among all producers."""
        return f"{self.producer}/{key}" if self.producer and key else key


class TokenHolder(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The holder of a token, and its permissions.

    sha256: the hash of the token, in hexadecimal.
    queues: the names of the queues that the token opens, or EVERY.
    producer: the producer whose ids the token uses; None for the producer with the token's own name.
    """

    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    queues: list[str]
    role: TokenRole = TokenRole.ALL
    producer: str | None = None
    made: datetime | None = None

    def opens(self, whole: Callable[[str], str]) -> Collection[str] | None:
        """Return the full names of the queues that the token opens; None for all queues.

        Args:
            whole: returns the full name of a queue.
        """
        return None if EVERY in self.queues else frozenset(map(whole, self.queues))

    def producer_of(self, name: str) -> str:
        """Return the producer whose ids a token uses.

        Raises:
            UsageError: no producer can have this name.
        """
        producer = name if self.producer is None else self.producer
        if not PRODUCER.fullmatch(producer):
            raise UsageError(
                f'[{name}]: its ids need a name of up to 64 letters, digits, ., _ and -: type producer = "NAME"'
            )
        return producer


class Opener(Protocol):
    """Knows tokens and their permissions."""

    def opened_by(self, token: str) -> Opened | None:
        """Return the permissions of a token; None if it is unknown."""


class Tokens:
    """The known tokens, each represented by its hash.

    Raises:
        UsageError: the name of a producer is not valid.
    """

    def __init__(self, holders: dict[str, TokenHolder], whole: Callable[[str], str]) -> None:
        """Keep the holders; `whole` returns the full name of a queue."""
        self._holders = [
            (
                bytes.fromhex(holder.sha256),
                Opened(holder.producer_of(name), holder.opens(whole), holder.role, name),
            )
            for name, holder in holders.items()
        ]

    @classmethod
    def read(cls, path: Path, whole: Callable[[str], str]) -> Tokens:
        """Return the tokens of a file.

        Raises:
            UsageError: the file cannot be read, can be read by others, or is not a file of tokens.
        """
        try:
            return cls(holders_in(path), whole)
        except UsageError as error:
            raise UsageError(f"{path}: {str(error).removeprefix(f'{path}: ')}") from None

    def opened_by(self, token: str) -> Opened | None:
        """Do the same as `Opener.opened_by`, in a time that does not depend on the token."""
        given = hashlib.sha256(token.encode("utf-8")).digest()
        found: Opened | None = None
        for digest, opened in self._holders:
            if hmac.compare_digest(digest, given):
                found = opened
        return found


class TokenFile:
    """The current tokens of a file. A revoked token is refused from the next request on.

    If the file becomes unreadable, the earlier tokens stay valid, because a typing error should not shut out all
    producers; the problem is logged.

    Raises:
        UsageError: the file cannot be read at the start.
    """

    def __init__(self, path: Path, whole: Callable[[str], str], log: FilteringBoundLogger) -> None:
        self._path = path
        self._whole = whole
        self._log = log
        self._state = self._state_now()
        self._tokens = Tokens.read(path, whole)

    def opened_by(self, token: str) -> Opened | None:
        """Do the same as `Opener.opened_by`."""
        state = self._state_now()
        if state != self._state:
            self._state = state
            try:
                self._tokens = Tokens.read(self._path, self._whole)
            except UsageError as error:
                self._log.warning(
                    "tokens-not-read", reason=str(error), advice="those of before hold until then"
                )
            else:
                self._log.info("tokens-read", file=str(self._path))
        return self._tokens.opened_by(token)

    def _state_now(self) -> tuple[int, ...]:
        try:
            found = os.stat(self._path)
        except OSError:
            return ()
        return found.st_ino, found.st_mtime_ns, found.st_size, found.st_mode


def holders_in(path: Path) -> dict[str, TokenHolder]:
    """Return the holders of the tokens in a file, keyed by the tokens' names.

    Raises:
        UsageError: the file cannot be read, can be read by others, or is not a file of tokens. The error text contains
            no token.
    """
    return holders_of(read_secret(path, "the tokens"), str(path))


def holders_of(text: str, where: str) -> dict[str, TokenHolder]:
    """Return the holders of the tokens in a text, keyed by the tokens' names.

    Args:
        where: the file of the text, for errors.
    """
    try:
        return msgspec.convert(tomllib.loads(text), dict[str, TokenHolder])
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise UsageError(f"{where}: {error}") from None
