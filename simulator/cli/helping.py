"""The common form of all help texts, with commands grouped by task and a word for each value."""

from __future__ import annotations

import re
from typing import Any, Final

from typer.core import TyperArgument, TyperGroup, TyperOption

TASKS: Final[dict[str, dict[str, str]]] = {
    "Run": {
        "demo": "Run three nodes under faults, and prove that nothing was lost",
        "run": "Start the nodes of a topology and keep them running",
        "node": "Run one queue manager in the foreground",
        "gateway": "Accept messages over HTTP for the queues of a node",
        "trigger": "Call a service once for each message of a queue",
        "queue": "Make, change, delete, list and export queues",
        "keys": "Manage the keys of a node, for encryption and signatures",
        "tokens": "Manage the bearer tokens of a gateway",
        "store": "Look after the store of a node",
        "config": "Check a settings file for node, gateway, trigger and console",
        "service": "Print units for systemd",
    },
    "Use": {
        "send": "Send a message, or one for each line",
        "receive": "Receive messages in a transaction",
        "peek": "Show the first messages of a queue without removing them",
        "pause": "Stop sending to a queue until it is resumed",
        "resume": "Resume sending to a queue that was paused",
        "purge": "Delete all messages of a queue",
        "return": "Send dead letters, or messages of a journal, again",
        "failed": "List messages that failed, and try them again",
        "erase": "Erase the bodies of finished messages",
    },
    "Look": {
        "console": "Serve a page that shows everything live",
        "queues": "Show how many messages wait in each queue",
        "top": "Show nodes, sessions and queues, refreshed every second",
        "explain": "Explain why something waits, and what to do",
        "history": "Tell what happened to a message, and where it is now",
        "peers": "Show who is connected, and what they did",
        "audit": "Account for each message that a gateway has accepted",
        "probe": "Find out whether MSMQ listens at an address",
    },
    "Break": {
        "kill": "Kill running nodes, which then stay down",
        "restart": "Start nodes that were killed, or stop and start them",
        "cut": "Cut a link: reset its connections, and refuse new ones",
        "stall": "Stall a link: nothing crosses it, and nothing is closed",
        "slow": "Slow a link down",
        "mend": "Mend links that were cut, stalled or slowed down",
        "simulate": "Simulate whole systems, with everything that can go wrong",
        "crash": "Kill three nodes again and again, at random moments",
        "validate": "Run everything against a consumer that fails on cue",
        "fuzz": "Send hostile packets to a parser or a live peer",
    },
    "Captures": {
        "decode": "Show a capture's packets, and what is wrong with them",
        "replay": "Replay a captured conversation to a live peer",
        "analyse": "Turn captures of any size into tables",
        "report": "Make one HTML page from the tables",
        "tables": "Describe, query and export the tables",
        "wireshark": "Print a dissector for Wireshark and tshark",
    },
}
"""The summaries of the commands, grouped by task, as `mqproto --help` shows them."""

SUMMARIES: Final = {name: summary for commands in TASKS.values() for name, summary in commands.items()}

WORDS: Final = {
    word: frozenset(names.split())
    for word, names in {
        "BYTES": "body-bytes segment-bytes",
        "COMMAND": "program",
        "DAYS": "days",
        "EXCEPTION": "expect",
        "FIELD": "error-field",
        "FILE|FOLDER": "corpus",
        "FOLDER": "captures directory",
        "GUID": "as neighbour",
        "HOST[:PORT]": "to",
        "KB": "journal-quota-kb quota-kb",
        "KIND": "ack kind",
        "MESSAGE": "correlation-id",
        "MIB": "memory range",
        "MINUTES": "minutes",
        "NAME": "name",
        "NODE": "node",
        "PORT": "ping-port",
        "QUEUE": "admin-queue dead-letter-queue error-queue in-doubt-queue queue response-queue trace-queue",
        "REASON": "reason",
        "ROLE": "role",
        "SECONDS": "interval lease max-delay seconds time-to-be-received time-to-reach-queue timeout",
        "SEQUENCE": "sequence",
        "TIME": "after before since until",
        "TOPOLOGY": "topology",
        "URL": "master",
        "URL|MODULE:FUNCTION": "resolver",
        "ATTACK": "only",
        "MODULE:FUNCTION": "target",
        "captured|max|N": "speed",
        "captured|new|GUID": "identity",
        "client|server|HOST[:PORT]": "side",
        "correlation": "group-by",
    }.items()
}
"""The words in help texts for values whose type says too little, with the names of their options."""
_WORDS: Final = {name: word for word, names in WORDS.items() for name in names}

TYPES: Final = {"int": "N", "float": "N", "Path": "FILE"}
"""The words for the values of all other options, keyed by type; for any other type, the word is TEXT."""


SUMMARY_LIMIT: Final = 64
"""The number of columns for the summary next to a command's name, on a terminal of 80 columns."""


class ByTask(TyperGroup):
    """`mqproto --help`, with the commands grouped by task."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        wide = max(map(len, SUMMARIES))
        for task, commands in TASKS.items():
            there = [
                (f"{name:{wide}}", summary) for name, summary in commands.items() if name in self.commands
            ]
            if there:
                with formatter.section(task):
                    formatter.write_dl(there)


class _Argument(TyperArgument):
    """An argument for which help texts show only the name, in brackets if the argument is optional."""

    def display_type_rich(self, ctx: Any) -> str | None:
        return None

    def get_usage_pieces(self, ctx: Any) -> list[str]:
        name = self.display_name_raw
        return [(name if self.required else f"[{name}]") + "..." * (self.nargs != 1)]


def worded(command: Any) -> Any:
    """Return a Typer command whose help describes values by words instead of Python types.

    The same is done for its subcommands.
    """
    command.short_help = _summary(command.help or "")
    for parameter in (*command.params, *getattr(command, "shared", ())):
        if isinstance(parameter, TyperArgument):
            parameter.__class__ = _Argument
            parameter.metavar = (parameter.metavar or parameter.name or "").strip("[].").upper()
        elif parameter.metavar is None and not parameter.is_flag:
            parameter.metavar = _word(parameter)
    for each in getattr(command, "commands", {}).values():
        worded(each)
    return command


def _summary(text: str) -> str:
    """Return the first sentence of a help text, or as much of it as fits and makes sense."""
    first = re.split(r"(?<=[.?])(?:\s|$)|\n\n", " ".join(text.partition("\n\n")[0].split()))[0].rstrip(".")
    for ends in (";:", ","):
        while len(first) > SUMMARY_LIMIT and (shorter := re.match(f"(.*)[{ends}] ", first)):
            first = shorter[1]
    return first


def _word(option: TyperOption) -> str | None:
    """Return the word for an option's value; None if its choices are shown instead."""
    if option.type_descriptor.is_choice:
        return "|".join(map(str, option.type_descriptor.choices or ()))
    known = (_WORDS[name.lstrip("-")] for name in option.opts if name.lstrip("-") in _WORDS)
    return next(known, None) or next(
        (word for kind, word in TYPES.items() if kind in option.bare_type()), "TEXT"
    )
