"""The messages of a page, as JSON for its script."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any, Final

from captures.pipeline.report.facts import Facts
from captures.pipeline.report.words import harmless

TEXTS: Final = {
    "id": "message",
    "label": "label",
    "queue": "queue",
    "delivery": "delivery",
    "sequence": "sequence",
    "finalClass": "final_class",
    "outcome": "outcome",
    "whereabouts": "whereabouts",
    "file": "file",
}
NUMBERS: Final = {"number": "sequence_number", "bytes": "body_bytes", "resends": "resends"}
TIMES: Final = {"first": "first_ns", "arrived": "arrived_ns", "acked": "order_acked_ns", "final": "final_ns"}
FLAGS: Final = {"ackedAtSource": "order_ack_at_source", "complete": "complete"}
LISTS: Final = ("route", "administration", "hops", "findings")


def embedded(facts: Facts) -> str:
    """Each message a list of values in the order of `columns`; a text is its place in `words`, times are µs since 1970.

    partial: whether there are more findings than those that messages have here.

    It may stand between script tags: no text in it can end them.
    """
    words: dict[str, int] = {}

    def word(text: str | None) -> int | None:
        return None if text is None else words.setdefault(harmless(text), len(words))

    findings: defaultdict[str, list[list[int | None]]] = defaultdict(list)
    for each in facts.judgments.found:
        for example in each.examples:
            if example.message is not None:
                findings[example.message].append([word(each.code), word(example.text)])
    messages = []
    for row in facts.messages.embedded:
        said = zip(row["administration"] or (), row["administration_ns"] or (), strict=True)
        messages.append(
            [
                *(word(row[name]) for name in TEXTS.values()),
                *(row[name] for name in NUMBERS.values()),
                *(_us(row[name]) for name in TIMES.values()),
                *(row[name] for name in FLAGS.values()),
                [word(label) for label in row["route"]],
                [[word(name), _us(time_ns)] for name, time_ns in said],
                [_hop(hop, word) for hop in facts.messages.ways[row["message"]]],
                findings[row["message"]],
            ]
        )
    partial = any(each.count > len(each.examples) for each in facts.judgments.found)
    columns = [*TEXTS, *NUMBERS, *TIMES, *FLAGS, *LISTS]
    data = {
        "columns": columns,
        "texts": [*TEXTS],
        "words": [*words],
        "partial": partial,
        "messages": messages,
    }
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _hop(hop: dict[str, Any], word: Any) -> list[Any]:
    return [
        word(hop["from_label"]),
        word(hop["to_label"]),
        _us(hop["first_ns"]),
        _us(hop["last_ns"]),
        _us(hop["waited_ns"]),
        _us(hop["acknowledged_ns"]),
        hop["copies"],
        word(hop["file"]),
        hop["frame"],
    ]


def _us(time_ns: int | None) -> int | None:
    return None if time_ns is None else time_ns // 1_000
