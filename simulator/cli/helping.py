"""What help says the same way everywhere: commands by task, a summary for each, and a word for each value."""

from __future__ import annotations

import re
from typing import Any, Final

from typer.core import TyperArgument, TyperGroup, TyperOption

TASKS: Final[dict[str, dict[str, str]]] = {
    "Run": {
        "demo": "Three nodes, broken links, killed nodes; proof at the end",
        "run": "Start the nodes of a topology and keep them running",
        "node": "One queue manager in the foreground",
        "gateway": "Take messages by HTTP for the queues of a node",
        "trigger": "Have a service called once for each message of a queue",
        "queue": "Make, change, delete, list and export queues",
        "keys": "The keys of a node, to encrypt and to sign",
        "tokens": "The bearer tokens of a gateway",
        "store": "Look after the store of a node",
        "config": "The settings of node, gateway, trigger, console in a file",
        "service": "Units for systemd",
    },
    "Use": {
        "send": "Send a message, or one for each line",
        "receive": "Receive messages in a transaction",
        "peek": "Look at the first messages of a queue, which stay there",
        "pause": "Send nothing more to a queue until it is resumed",
        "resume": "Go on sending to a queue that was paused",
        "purge": "Delete all messages of a queue",
        "return": "Send dead letters, or messages of a journal, once more",
        "failed": "See messages that have failed, and try them again",
        "erase": "Have the bodies of messages gone that are over",
    },
    "Look": {
        "console": "A page in the browser that shows all of it, live",
        "queues": "What waits where, on every node that runs",
        "top": "The same and more while it happens, each second anew",
        "explain": "Why something waits, what happens next, what can be done",
        "history": "All that happened to a message, and where it is now",
        "peers": "Who is connected, and what they did",
        "audit": "Who has each message that a gateway has accepted",
        "probe": "Is this MSMQ, and what does it say?",
    },
    "Break": {
        "kill": "Kill nodes that run, which then stay down",
        "restart": "Start nodes that were killed, or stop and start them",
        "cut": "Cut a link: its connections are reset, and none can be made",
        "stall": "Stall a link: nothing crosses it, and nothing is closed",
        "slow": "Make a link slow: all that crosses it waits",
        "mend": "Mend links that were cut, stalled or slow",
        "simulate": "Whole systems on a clock that jumps, with all that can go wrong",
        "crash": "Three nodes that are killed at every moment of their lives",
        "validate": "A consumer that fails on cue, and all before it",
        "fuzz": "Hostile packets for a parser or a live peer",
    },
    "Captures": {
        "decode": "What a capture says, and what is wrong with it",
        "replay": "Speak a captured conversation to a live peer",
        "analyse": "Captures of any size into tables",
        "report": "What the tables say, as one HTML page",
        "tables": "What is in the tables: columns, rows, runs, SQL",
        "wireshark": "Print a dissector for Wireshark and tshark",
    },
}
"""The commands as `mqproto --help` has them."""

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
"""What the value of an option is called that says nothing itself."""
_WORDS: Final = {name: word for word, names in WORDS.items() for name in names}

TYPES: Final = {"int": "N", "float": "N", "Path": "FILE"}
"""The same by the type, for all others; or else it is a TEXT."""


SUMMARY_LIMIT: Final = 64
"""What 80 columns leave beside the name of a command."""


class ByTask(TyperGroup):
    """`mqproto --help`, with the commands by what somebody wants to do."""

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
    """One that is there by its name alone, in brackets if it may be left out."""

    def display_type_rich(self, ctx: Any) -> str | None:
        return None

    def get_usage_pieces(self, ctx: Any) -> list[str]:
        name = self.display_name_raw
        return [(name if self.required else f"[{name}]") + "..." * (self.nargs != 1)]


def worded(command: Any) -> Any:
    """The same command of Typer, its values named by words and not by Python's types; those below it as well."""
    command.short_help = _summary(command.help or "")
    for parameter in command.params:
        if isinstance(parameter, TyperArgument):
            parameter.__class__ = _Argument
            parameter.metavar = (parameter.metavar or parameter.name or "").strip("[].").upper()
        elif parameter.metavar is None and not parameter.is_flag:
            parameter.metavar = _word(parameter)
    for each in getattr(command, "commands", {}).values():
        worded(each)
    return command


def _summary(text: str) -> str:
    """The first sentence of a help, or as much of it as fits and means something."""
    first = re.split(r"(?<=[.?])(?:\s|$)|\n\n", " ".join(text.partition("\n\n")[0].split()))[0].rstrip(".")
    for ends in (";:", ","):
        while len(first) > SUMMARY_LIMIT and (shorter := re.match(f"(.*)[{ends}] ", first)):
            first = shorter[1]
    return first


def _word(option: TyperOption) -> str | None:
    """What stands for its value; None if the choices themselves do."""
    if option.type_descriptor.is_choice:
        return "|".join(map(str, option.type_descriptor.choices or ()))
    known = (_WORDS[name.lstrip("-")] for name in option.opts if name.lstrip("-") in _WORDS)
    return next(known, None) or next(
        (word for kind, word in TYPES.items() if kind in option.bare_type()), "TEXT"
    )
