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

`mqproto tokens` writes it; a token itself is nowhere. Each is made of 256 random bits, so that nobody finds it by
trying: a hash that is slow on purpose, which passwords need as people choose them, would protect nothing here and cost
each request its time. A queue that no token opens is closed.
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
"""The name of a producer whose ids are its own. No name has the character between it and an id."""
EVERY: Final = "*"
"""Stands for every queue; no queue is called so.  [MS-MQMQ] 2.1.1"""


class TokenRole(StrEnum):
    """What may be done with a token, in the queues that it opens."""

    READ = "read"
    """Ask what has become of messages."""
    SEND = "send"
    """Hand in messages."""
    ALL = "all"

    def may(self, needed: TokenRole) -> bool:
        """Whether this role permits what another role does."""
        return self in (TokenRole.ALL, needed)


class Opened(NamedTuple):
    """The queues that a request may reach.

    producer: whose ids it uses; empty for those of all who need no token.
    queues: None for all.
    holder: the name of its token; empty for none.
    """

    producer: str = ""
    queues: Collection[str] | None = None
    role: TokenRole = TokenRole.ALL
    holder: str = ""

    def whole(self, key: str) -> str:
        """Return a producer's id in the form behind the gateway, where it is unique among producers."""
        return f"{self.producer}/{key}" if self.producer and key else key


class TokenHolder(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The holder of a token, and its permissions.

    sha256: of the token, in hexadecimal.
    queues: their names, or EVERY.
    producer: whose ids it uses; None for those of its own name.
    """

    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    queues: list[str]
    role: TokenRole = TokenRole.ALL
    producer: str | None = None
    made: datetime | None = None

    def opens(self, whole: Callable[[str], str]) -> Collection[str] | None:
        """The queues, each by its one name, which `whole` gives; None for all."""
        return None if EVERY in self.queues else frozenset(map(whole, self.queues))

    def producer_of(self, name: str) -> str:
        """Return the producer whose ids a token uses.

        Raises:
            UsageError: it is a name that no producer can have.
        """
        producer = name if self.producer is None else self.producer
        if not PRODUCER.fullmatch(producer):
            raise UsageError(
                f'[{name}]: its ids need a name of up to 64 letters, digits, ., _ and -: type producer = "NAME"'
            )
        return producer


class Opener(Protocol):
    """Knows tokens."""

    def opened_by(self, token: str) -> Opened | None:
        """Return the permissions of a token; None if it is unknown."""


class Tokens:
    """Tokens by their hashes.

    Raises:
        UsageError: a producer has a name that it cannot have.
    """

    def __init__(self, holders: dict[str, TokenHolder], whole: Callable[[str], str]) -> None:
        """`whole` gives each queue its one name."""
        self._holders = [
            (
                bytes.fromhex(holder.sha256),
                Opened(holder.producer_of(name), holder.opens(whole), holder.role, name),
            )
            for name, holder in holders.items()
        ]

    @classmethod
    def read(cls, path: Path, whole: Callable[[str], str]) -> Tokens:
        """Those of a file.

        Raises:
            UsageError: it cannot be read, others can read it, or it is not such a file.
        """
        try:
            return cls(holders_in(path), whole)
        except UsageError as error:
            raise UsageError(f"{path}: {str(error).removeprefix(f'{path}: ')}") from None

    def opened_by(self, token: str) -> Opened | None:
        """`Opener.opened_by`. It takes as long whatever the token is."""
        given = hashlib.sha256(token.encode("utf-8")).digest()
        found: Opened | None = None
        for digest, opened in self._holders:
            if hmac.compare_digest(digest, given):
                found = opened
        return found


class TokenFile:
    """The tokens of a file, as they are now: one that is revoked opens nothing from the next request on.

    What cannot be read changes nothing, and is in the log: a slip of the pen should not shut all producers out.

    Raises:
        UsageError: it cannot be read at the beginning.
    """

    def __init__(self, path: Path, whole: Callable[[str], str], log: FilteringBoundLogger) -> None:
        self._path = path
        self._whole = whole
        self._log = log
        self._state = self._state_now()
        self._tokens = Tokens.read(path, whole)

    def opened_by(self, token: str) -> Opened | None:
        """`Opener.opened_by`."""
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
    """Return the tokens of a file by name.

    Raises:
        UsageError: it cannot be read, others can read it, or it is not such a file. No token is in the text.
    """
    return holders_of(read_secret(path, "the tokens"), str(path))


def holders_of(text: str, where: str) -> dict[str, TokenHolder]:
    """The same for the text of the file `where`."""
    try:
        return msgspec.convert(tomllib.loads(text), dict[str, TokenHolder])
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise UsageError(f"{where}: {error}") from None
