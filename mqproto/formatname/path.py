r"""Path names, with which people name a queue: `server\private$\orders`.  [MS-MQMQ] 2.1.1

A path name and a direct format name both end with the queue's name on its computer, which is a `LocalName`. MSMQ
ignores case when it compares names. This module keeps the case in which names were written, except for keywords, which
have one canonical form.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from mqproto.base.errors import FormatNameError
from mqproto.base.foreign import shown

QUEUE_LIMIT: Final = 124
COMPUTER_LIMIT: Final = 256
SUBQUEUE_LIMIT: Final = 32

# The rule of MSMQ 4.0 to 6.0. It allows DEL, as the ABNF does, and the slash, which is therefore not a separator.
# Windows makes queues with spaces in their names, which the ABNF does not allow.
_QUEUE_CHARACTERS: Final = frozenset(map(chr, range(0x20, 0x80))) - set('"+,;\\')
# The ABNF allows every visible character. Those left out here would end the computer's name in some format names,
# and no operating system allows them in a computer's name.
_COMPUTER_CHARACTERS: Final = frozenset(map(chr, range(0x21, 0x7F))) - set('"+,/:;=\\@')


class SystemQueue(StrEnum):
    """The system queues of each computer; applications can only receive from them.  [MS-MQMQ] 2.1.2"""

    JOURNAL = "JOURNAL"
    DEADLETTER = "DEADLETTER"
    DEADXACT = "DEADXACT"


# System.Messaging's spelling: `.\DeadLetter$`. A queue with one of these names cannot be told from the system's.
_DOLLAR_NAMES: Final = {
    "JOURNAL$": SystemQueue.JOURNAL,
    "DEADLETTER$": SystemQueue.DEADLETTER,
    "XACTDEADLETTER$": SystemQueue.DEADXACT,
}
_RESERVED: Final = {"PRIVATE$", "SYSTEM$", *_DOLLAR_NAMES}


class Scope(StrEnum):
    """The kind of a queue's name on its computer: public, private or system.  [MS-MQMQ] 2.1.1"""

    PUBLIC = "public"
    PRIVATE = "private"
    SYSTEM = "system"


class LocalName(NamedTuple):
    """A queue's name on its own computer.  [MS-MQMQ] 2.1.1

    It consists of QueueName, its scope, and its subqueue or journal.
    """

    queue: str
    scope: Scope = Scope.PUBLIC
    subqueue: str = ""
    journal: bool = False

    @property
    def read_only(self) -> bool:
        """Whether the name is that of a journal or a dead-letter queue.  [MS-MQMQ] 2.1.7

        Nobody can send to such a queue.
        """
        return self.journal or self.scope is Scope.SYSTEM

    def checked(self) -> LocalName:
        """Return the same name, with a system queue's keyword in capitals.

        Raises:
            FormatNameError: the name would be different, or invalid, if it were written and read back.
        """
        check_text("queue name", self.queue, QUEUE_LIMIT, _QUEUE_CHARACTERS)
        if self.queue.upper() in _RESERVED:
            raise FormatNameError(f"{self.queue} is a keyword and cannot be a queue's name; choose another")
        if self.subqueue:
            check_text("subqueue name", self.subqueue, SUBQUEUE_LIMIT, _QUEUE_CHARACTERS)
            if self.subqueue.upper() == SystemQueue.JOURNAL:
                raise FormatNameError("JOURNAL names the queue's journal and cannot be a subqueue's name")
        # The ABNF lets several suffixes follow one another; QUEUE_FORMAT ([MS-MQMQ] 2.2.7) has room for one.
        if [self.scope is Scope.SYSTEM, self.subqueue != "", self.journal].count(True) > 1:
            raise FormatNameError("a subqueue, journal or system queue has no such part; leave one ';' out")
        if self.scope is Scope.SYSTEM and self.queue.upper() in SystemQueue.__members__:
            return self._replace(queue=self.queue.upper())
        return self

    def text(self, private: str, system: str) -> str:
        """Return the text that follows the computer's backslash.

        private, system: the spellings of the keywords `private$` and `system$`.
        """
        keyword = {Scope.PUBLIC: "", Scope.PRIVATE: f"{private}\\", Scope.SYSTEM: f"{system};"}[self.scope]
        suffix = ";JOURNAL" if self.journal else f";{self.subqueue}" if self.subqueue else ""
        return f"{keyword}{self.queue}{suffix}"


@dataclass(frozen=True, slots=True)
class PathName:
    r"""A queue named by its computer and its name there.  [MS-MQMQ] 2.1.1

    Examples are `server\private$\orders` and `.\system$;DEADXACT`.

    computer: 1 to 256 visible characters; `.` is the local computer.
    queue: 1 to 124 characters without `" + , ; \`; the first and the last cannot be a space.
    subqueue: up to 32 such characters, or empty.

    Raises:
        FormatNameError: such a name cannot exist.
    """

    computer: str
    queue: str
    scope: Scope = Scope.PUBLIC
    subqueue: str = ""
    journal: bool = False

    def __post_init__(self) -> None:
        check_computer(self.computer)
        object.__setattr__(self, "queue", self.local.checked().queue)

    @property
    def local(self) -> LocalName:
        """The name without its computer."""
        return LocalName(self.queue, self.scope, self.subqueue, self.journal)

    @property
    def read_only(self) -> bool:
        """Whether the name is that of a journal or a dead-letter queue, to which nobody can send."""
        return self.local.read_only

    def __str__(self) -> str:
        return f"{self.computer}\\{self.local.text('private$', 'system$')}"


def parse_path_name(text: str) -> PathName:
    r"""Read `server\queue`, `.\private$\queue`, `server\system$;deadxact` and their usual spellings.

    Keywords may be in upper or lower case, and spaces may surround the whole name. `;journal` is understood, and so
    are System.Messaging's `\Journal$`, `\DeadLetter$` and `\XactDeadLetter$`.

    Raises:
        FormatNameError: the text is not a path name. The error is one line that says what is wrong and, if there is a
            guess, which name was probably meant.
    """
    try:
        return _parse(text.strip(" "))
    except FormatNameError as error:
        meant = guess(text)
        reason = f"{meant.reason}; write {meant.path}" if meant else error
        raise FormatNameError(f"{told(text)}: {reason}") from None


def _parse(text: str) -> PathName:
    # Beyond ASCII, a change of case can change the length and even turn other text into a keyword.
    if not text.isascii():
        raise FormatNameError("a name has ASCII characters only")
    if re.match(r"(?:(?:msmq\.)?formatname\s*:|[a-z]+\s*=)", text, re.IGNORECASE):
        raise FormatNameError("a path name is wanted here and this is a format name; write computer\\queue")
    computer, backslash, local = text.partition("\\")
    if not backslash:
        raise FormatNameError(r"a path name is computer\queue or computer\private$\queue")
    return PathName(computer, *parse_local(local))


def parse_local(text: str) -> LocalName:
    r"""Read what follows the computer's backslash: `private$\orders;journal`."""
    parts = text.split("\\")
    if "" in parts:
        raise FormatNameError("a name is empty before or after a backslash; separate with single backslashes")
    # System.Messaging appends the journal as if it were a folder: .\orders\Journal$
    journal = len(parts) > 1 and parts[-1].upper() == "JOURNAL$" and parts[-2].upper() != "PRIVATE$"
    match parts[:-1] if journal else parts:
        case [name] if name.upper().startswith("SYSTEM$;"):
            scope, name = Scope.SYSTEM, name[len("SYSTEM$;") :]
        case [name] if name.upper() in _DOLLAR_NAMES and not journal:
            scope, name = Scope.SYSTEM, _DOLLAR_NAMES[name.upper()].value
        case [name] if name.upper() == "SYSTEM$":
            raise FormatNameError("after system$ comes ;JOURNAL, ;DEADLETTER or ;DEADXACT")
        case [name] if name.upper() == "PRIVATE$":
            raise FormatNameError(r"after private$ comes a backslash and the queue's name")
        case [name]:
            scope = Scope.PUBLIC
        case [first, name] if first.upper() == "PRIVATE$":
            scope = Scope.PRIVATE
        case [first, _] if first.upper() == "SYSTEM$":
            raise FormatNameError("after system$ comes a semicolon, as in system$;DEADXACT")
        case _:
            raise FormatNameError(r"too many backslashes; it is computer\queue or computer\private$\queue")

    name, *suffixes = name.split(";")
    if len(suffixes) > 1:
        raise FormatNameError("at most one ;SUBQUEUE or ;JOURNAL can follow a queue's name")
    suffix = suffixes[0] if suffixes else ""
    if suffixes and not suffix:
        raise FormatNameError("nothing follows the semicolon; leave it out")
    if suffix.upper() == SystemQueue.JOURNAL:
        return LocalName(name, scope, "", journal=True)
    return LocalName(name, scope, suffix, journal)


def check_text(what: str, text: str, limit: int, allowed: frozenset[str]) -> None:
    """Refuse a text that is empty or too long, has a forbidden character, or begins or ends with a space."""
    if not text:
        raise FormatNameError(f"the {what} is empty")
    if len(text) > limit:
        raise FormatNameError(f"the {what} has {len(text)} characters; at most {limit} are allowed")
    if strangers := [character for character in text if character not in allowed]:
        raise FormatNameError(f"a {what} cannot contain {strangers[0]!a}")
    if text.strip() != text:
        raise FormatNameError(f"a {what} neither begins nor ends with a space")


def check_computer(name: str) -> None:
    """Refuse a text that cannot be a computer's name.  [MS-MQMQ] 2.1.1"""
    check_text("computer name", name, COMPUTER_LIMIT, _COMPUTER_CHARACTERS)
    if name.upper() in _RESERVED:
        raise FormatNameError(r"the computer is missing; begin with .\ for this one, as in .\private$\queue")


def told(text: str) -> str:
    """Return a text in a form in which an error message can quote it."""
    return shown(text) or "(nothing)"


class PathNameGuess(NamedTuple):
    """A path name that was probably meant, and what is unusual about the text."""

    reason: str
    path: PathName


def guess(text: str) -> PathNameGuess | None:
    """Guess the meaning of a text that is not a path name; None if there is no guess.

    NServiceBus and Rebus write `orders@server`, WCF and MassTransit write URLs, and many programs write slashes.
    """
    text = text.strip()
    if found := re.fullmatch(r"([^\\/@:]+)@([^\\/@:]+)", text):
        reason, path = "queue@computer is not a name to MSMQ", rf"{found[2]}\private$\{found[1]}"
    elif found := re.fullmatch(r"(?i)(?:net\.)?msmq://([^/:]+)(?::\d+)?/(?:private\$?/)?([^/]+)", text):
        reason, path = "a URL is not a name to MSMQ", rf"{found[1]}\private$\{found[2]}"
    elif r"\\" in text:
        reason, path = "single backslashes separate the parts", re.sub(r"\\+", r"\\", text).strip("\\")
    elif "/" in text:
        reason, path = "backslashes separate the parts", text.replace("/", "\\").strip("\\")
    elif text.lower().startswith("private$\\"):
        reason, path = "the computer is missing", rf".\{text}"
    else:
        return None
    try:
        return PathNameGuess(reason, _parse(path))
    except FormatNameError:
        return None
