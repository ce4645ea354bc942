"""Writes the facts about a world to a file next to its capture: the messages, and the outcome of each.

    mqproto simulate --seeds 200 --captures FOLDER

writes `seed-7.pcapng` and `seed-7.json`, and so on for each world. Readers of captures report only what they have seen,
whereas the world knows everything.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mqproto.simulator.world.run import WorldResult, simulate
from mqproto.simulator.world.scenarios.scenario import Scenario, as_json
from mqproto.simulator.world.scenarios.traffic import Message
from mqproto.wire import Guid, MessageClass, guid_text


def as_truth(result: WorldResult) -> dict[str, Any]:
    """Return all facts about a world, in a form that can be written as JSON.

    scenario: the scenario, as `--save` writes it.
    breach: the invariant that was broken, or null.
    tally: the counts.
    messages: the `message_facts` of accepted messages, in order of acceptance.
    """
    return {
        "scenario": json.loads(as_json(result.scenario)),
        "breach": None if result.breach is None else str(result.breach),
        "end_ms": result.end_ms,
        "tally": dict(sorted(result.tally.items())),
        "messages": [message_facts(message) for message in result.messages],
    }


def message_facts(message: Message) -> dict[str, Any]:
    """Return what a world knows about one message.

    id: the source's GUID and the MessageID, in the form in which `mqproto` writes identifiers.
    source, target, kind, label: those of its burst. queue: the number of its destination queue.
    accepted_ms: the time at which its source had it on disk, or in memory if it is express.
    sequence, number: TxSequenceID as time stamp and ordinal, and TxSequenceNumber; null if the message is not
        transactional, or never left its node.
    order: its place among the messages from that source to that queue.
    arrivals: the number of times that it was put into its queue.
    receipts: the number of times that an application received it for good.
    ended_in_queue: the number of times that it left its queue in another way.
    refusals: the classes of the negative acknowledgments that were sent for it.
    told: the classes of the negative acknowledgments that reached its source.
    replies: the classes of the acknowledgments in its source's administration queue.
    dead_letters: the node and the class of each of its dead letters.
    journaled: the number of times that it was put into its source's journal.
    """
    burst, (sequence, number) = message.burst, message.place or (None, None)
    return {
        "id": f"{guid_text(Guid(message.identity[:16]))}\\{int.from_bytes(message.identity[16:], 'little')}",
        "source": burst.source,
        "target": burst.target,
        "queue": message.kind.queue,
        "kind": burst.kind,
        "label": burst.label,
        "accepted_ms": message.accepted_ms,
        "sequence": sequence,
        "number": number,
        "order": message.order,
        "arrivals": message.arrivals,
        "receipts": message.receipts,
        "ended_in_queue": message.gone,
        "refusals": _names(message.refusals + message.lost_copies),
        "told": _names(message.told),
        "replies": _names(message.replies),
        "dead_letters": [[node, *_names([message_class])] for node, message_class in message.letters],
        "journaled": message.journaled,
    }


def simulate_into(folder: Path, scenario: Scenario) -> WorldResult:
    """Run a scenario, and write its capture and its truth into a folder.

    Raises:
        OSError: a file could not be written.
    """
    name = f"seed-{scenario.seed}"
    with (folder / f"{name}.pcapng").open("wb") as file:
        result = simulate(scenario, capture=file)
    (folder / f"{name}.json").write_text(json.dumps(as_truth(result), indent=1) + "\n", "utf-8")
    return result


def _names(classes: list[int]) -> list[str]:
    return [MessageClass(message_class).name for message_class in classes]
