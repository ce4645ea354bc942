"""`mqproto tokens make`, `show` and `revoke`, for the bearer tokens of a gateway.

Their file has only the tokens' hashes.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from mqproto.base.errors import UsageError
from mqproto.simulator.base.logfile import private
from mqproto.simulator.base.program.declared import ARGUMENT, value
from mqproto.simulator.base.program.output import DONE, FINDING, Printout, complain
from mqproto.simulator.command.options import Commands

if TYPE_CHECKING:
    from mqproto.simulator.edges.gateway.tokens import TokenHolder

BEGINS: Final = "mqproto_"
"""The beginning of every token, by which secret scanners recognize tokens in code and logs."""
TOKEN_BYTES: Final = 32
HEADING: Final = "# Tokens of a gateway, by their hashes: `mqproto tokens` makes, shows and revokes them.\n"
NAME: Final = r"[A-Za-z0-9_-]{1,64}"

app = Commands(
    help="Manage a gateway's bearer tokens, each with an owner and the queues that it opens. The file has only hashes.",
)
NameArgument = Annotated[str, ARGUMENT, "A name for the token's owner: up to 64 letters, digits, _ and -."]


@app.command()
def make(
    name: NameArgument,
    file: Annotated[Path, "The gateway's token file, as in its --tokens option.", "--tokens"],
    queues: Annotated[
        list[str] | None, "A queue that the token opens; repeatable, '*' for all.", "--queue", "-q"
    ] = None,
    role: Annotated[str, "send: send messages; read: ask for their outcomes; all: both."] = "",
    producer: Annotated[
        str | None,
        "The producer whose ids the token uses, by default NAME; with '', all ids, which requests then give in full.",
        value("NAME"),
    ] = None,
) -> int:
    """Make a token and print it once. FILE, which is made if it does not exist, gets only its hash.

    \b
    $ mqproto tokens make shop --role send --queue orders --tokens tokens.toml
    mqproto_9wNf1uUX2lqk3v0pI7s1Zq0nT5y8m4cEJgQbR6dLxHA
    """
    from mqproto.simulator.edges.gateway.tokens import TokenHolder, TokenRole

    if not re.fullmatch(NAME, name):
        raise UsageError(f"{name!r}: a token's name has up to 64 letters, digits, _ and -")
    if role not in list(TokenRole):
        raise UsageError(f"--role {role or 'is needed'}: type one of {', '.join(TokenRole)}")
    if not queues:
        raise UsageError("--queue is needed: a token opens the queues that it names, and no others")
    token = BEGINS + secrets.token_urlsafe(TOKEN_BYTES)
    holder = TokenHolder(
        sha256=hashlib.sha256(token.encode()).hexdigest(),
        queues=queues,
        role=TokenRole(role),
        producer=producer,
        made=datetime.now(UTC).replace(microsecond=0),
    )
    holder.producer_of(name)
    with _changing(file, is_new=True) as text:
        holders = _holders(text[0], file)
        if name in holders:
            raise UsageError(
                f"{file} has a token {name}: take another name (--producer {name} has the same ids), or revoke it first"
            )
        text[0] = (text[0].rstrip("\n") + "\n\n" if text[0] else HEADING + "\n") + _table(name, holder)
        if _holders(text[0], file) != {**holders, name: holder}:
            raise UsageError(
                f"{file}: nothing can be added behind what is there; mend it, or name another file"
            )
    print(token)
    complain(f"{file} has the hash of this token; nobody can show it again")
    return DONE


@app.command()
def show(file: Annotated[Path, ARGUMENT, "The gateway's token file, as in its --tokens option."]) -> Printout:
    """List the tokens, their owners, and the queues that they open. Status 1 if there are none."""
    from mqproto.simulator.edges.gateway.tokens import holders_in

    holders = holders_in(file)
    values, lines = [], []
    for name, holder in holders.items():
        made = f", made {holder.made:%Y-%m-%d}" if holder.made else ""
        whose = holder.producer_of(name)
        ids = "" if whose == name else f", with the ids of {whose or 'all'}"
        lines.append(f"{name}: {holder.role}, {', '.join(holder.queues) or 'no queue'}{ids}{made}")
        values.append(
            {
                "name": name,
                "role": holder.role,
                "queues": holder.queues,
                "producer": whose,
                "made": holder.made and holder.made.isoformat(),
            }
        )
    if not holders:
        return Printout([], [], FINDING, [f"{file} has no token: mqproto tokens make NAME --tokens {file}"])
    return Printout(values, lines)


@app.command()
def revoke(
    name: NameArgument,
    file: Annotated[Path, "The gateway's token file, as in its --tokens option.", "--tokens"],
) -> int:
    """Remove a token from FILE. A running gateway refuses it from the next request on."""
    with _changing(file, is_new=False) as text:
        holders = _holders(text[0], file)
        if name not in holders:
            raise UsageError(f"{file} has no token {name}; there are: {', '.join(holders) or 'none'}")
        text[0] = _without(text[0], name)
        if _holders(text[0], file) != {other: known for other, known in holders.items() if other != name}:
            raise UsageError(
                f"{file} is not written as mqproto tokens writes it: take the table [{name}] out of it"
            )
    print(f"{name} is revoked")
    return DONE


def _holders(text: str, file: Path) -> dict[str, TokenHolder]:
    from mqproto.simulator.edges.gateway.tokens import holders_of

    return holders_of(text, str(file))


def _table(name: str, holder: TokenHolder) -> str:
    quoted = partial(json.dumps, ensure_ascii=False)
    lines = [f"[{name}]", f'sha256 = "{holder.sha256}"', f'role = "{holder.role}"']
    lines.append(f"queues = [{', '.join(map(quoted, holder.queues))}]")
    if holder.producer is not None:
        lines.append(f"producer = {quoted(holder.producer)}")
    if holder.made is not None:
        lines.append(f"made = {holder.made:%Y-%m-%dT%H:%M:%SZ}")
    return "\n".join(lines) + "\n"


def _without(text: str, name: str) -> str:
    """Return the text of a file without one table.

    Anything that follows the table's lines, such as a comment, stays.
    """
    return re.sub(
        rf"^\[{re.escape(name)}\][^\n]*\n(?:[a-z0-9]+ *=[^\n]*\n?)*\n?", "", text, count=1, flags=re.MULTILINE
    )


@contextmanager
def _changing(file: Path, *, is_new: bool) -> Iterator[list[str]]:
    """Yield the text of a file so that it can be changed.

    The file is changed completely or not at all, and only one process at a time can change it.

    Raises:
        UsageError: the file cannot be read or written, or others can read it.
    """
    from mqproto.simulator.edges.secretfile import read_secret

    part = file.with_name(f".{file.name}-{os.getpid()}")
    try:
        folder = os.open(file.parent, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            text = ["" if is_new and not file.exists() else read_secret(file, "the tokens")]
            yield text
            with open(part, "x", encoding="utf-8", opener=private) as draft:
                draft.write(text[0])
                draft.flush()
                os.fsync(draft.fileno())
            part.replace(file)
            os.fsync(folder)
        finally:
            with suppress(FileNotFoundError):
                part.unlink()
            os.close(folder)
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}; name another file") from None
