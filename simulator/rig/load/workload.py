"""The messages of the demo: generated orders, the files of a folder, or the lines of a file."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from mqproto.base.errors import UsageError
from mqproto.messages.drafts import (
    BODY_LIMIT_BYTES,
    LABEL_LIMIT,
    SEALING_BYTES,
    SECURITY_BYTES,
    SIGNATURE_BYTES,
    Draft,
)

BATCH_MESSAGES: Final = 200
BATCH_BYTES: Final = 4 * 2**20

Sizes = tuple[tuple[int, int, int], ...]
"""The sizes of bodies, as tuples (count, least, most): of 1,000 generated orders, `count` have bodies of `least` to
`most` bytes."""
SIZES: Final[Sizes] = (
    (10, 0, 0),
    (780, 200, 1_500),
    (170, 1_500, 8_000),
    (36, 8_000, 60_000),
    (3, 60_000, 2**20),
    (1, 2**20, BODY_LIMIT_BYTES),
)
"""The sizes in many systems, with an occasional message that is larger than every buffer that it passes through."""
HEAVY: Final[Sizes] = (
    (30, 0, 0),
    (600, 200, 1_500),
    (250, 1_500, 20_000),
    (110, 20_000, 300_000),
    (10, 300_000, BODY_LIMIT_BYTES),
)
"""Sizes with which a hundred waiting messages reach the byte limits of windows and pages, and a thousand messages reach
the limits of the store's log.
"""

HEAVY_PROTECTED: Final[Sizes] = (
    *HEAVY[:-1],
    (10, 300_000, BODY_LIMIT_BYTES - SECURITY_BYTES - SEALING_BYTES - SIGNATURE_BYTES),
)
"""The sizes in HEAVY, but leaving room for a key, a certificate and a signature."""


class Item(NamedTuple):
    """One message to send."""

    label: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Workload:
    """A known number of messages, made or read one by one as they are sent.

    left_out: descriptions of the files that do not fit into a message.
    """

    description: str
    count: int
    items: Callable[[], Iterator[Item]]
    left_out: tuple[str, ...] = ()


def orders(count: int, seed: int = 0, sizes: Sizes = SIZES) -> Workload:
    """Return `count` orders as JSON, of mixed sizes, some of them empty. The same seed always makes the same orders."""

    def items() -> Iterator[Item]:
        for number in range(1, count + 1):
            yield Item(f"order {number}", _order(number, random.Random(f"{seed}/order/{number}"), sizes))

    return Workload(f"{count:,} generated orders (seed {seed})", count, items)


def _order(number: int, dice: random.Random, sizes: Sizes) -> bytes:
    _, least, most = dice.choices(sizes, [share for share, *_ in sizes])[0]
    size_bytes = dice.randint(least, most)
    if not size_bytes:
        return b""
    order = {"order": number, "customer": dice.randrange(10_000), "amount_cents": dice.randrange(1_000_000)}
    head = json.dumps(order | {"note": ""}).encode()
    # The note fills the order up to its size; hex digits need no escaping.
    note = dice.randbytes(max(0, size_bytes - len(head)) // 2).hex().encode()
    return head[:-2] + note + head[-2:]


def from_path(path: Path) -> Workload:
    """Return a workload with each file below a folder, including empty ones, or with each line of a file.

    Raises:
        UsageError: there is nothing to send, or the files cannot be read.
    """
    try:
        return files(path) if path.is_dir() else lines(path)
    except OSError as error:
        raise UsageError(f"{error.filename}: {error.strerror}; name a folder or a file to send") from None


def files(folder: Path) -> Workload:
    """Return a workload with each regular file below a folder, in the order of the paths. The label is the relative
    path.
    """
    paths = []
    left_out = []
    for path in _regular_files(folder):
        if path.stat().st_size > BODY_LIMIT_BYTES:
            left_out.append(
                f"{path}: {path.stat().st_size:,} bytes, a message carries at most {BODY_LIMIT_BYTES:,}"
            )
        elif not os.access(path, os.R_OK):
            left_out.append(f"{path}: not ours to read")
        else:
            paths.append(path)
    if not paths:
        raise UsageError(f"{folder}: no file below it can be sent; name another folder")

    def items() -> Iterator[Item]:
        for path in paths:
            # A file may change or grow while we run; we send what we read, up to the limit.
            with path.open("rb") as file:
                body = file.read(BODY_LIMIT_BYTES)
            yield Item(str(path.relative_to(folder))[-LABEL_LIMIT // 2 :], body)

    return Workload(f"the {len(paths):,} files below {folder}", len(paths), items, tuple(left_out))


def _regular_files(folder: Path) -> Iterator[Path]:
    def refuse(error: OSError) -> None:
        raise error

    for parent, folders, names in os.walk(folder, onerror=refuse):
        folders.sort()
        for name in sorted(names):
            path = Path(parent, name)
            if path.is_file():
                yield path


def lines(path: Path) -> Workload:
    """Return a workload with each line of a file, without its newline."""
    with path.open("rb") as file:
        count = longest = 0
        for line in file:
            count += 1
            longest = max(longest, len(line))
    if not count:
        raise UsageError(f"{path}: the file is empty, so there is nothing to send")
    if longest > BODY_LIMIT_BYTES:
        raise UsageError(
            f"{path}: a line has {longest:,} bytes; a message carries at most {BODY_LIMIT_BYTES:,}"
        )

    def items() -> Iterator[Item]:
        with path.open("rb") as file:
            for number, line in enumerate(islice(file, count), 1):
                yield Item(f"{path.name[: LABEL_LIMIT // 2]}:{number}", line.rstrip(b"\r\n"))

    return Workload(f"the {count:,} lines of {path}", count, items)


def as_batches(drafts: Iterable[Draft]) -> Iterator[list[Draft]]:
    """Yield messages in groups, each small enough for one request to a node."""
    batch: list[Draft] = []
    size_bytes = 0
    for draft in drafts:
        if batch and (len(batch) == BATCH_MESSAGES or size_bytes + draft.size_bytes > BATCH_BYTES):
            yield batch
            batch, size_bytes = [], 0
        batch.append(draft)
        size_bytes += draft.size_bytes
    if batch:
        yield batch
