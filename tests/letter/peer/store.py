"""The data that outlives a peer, in one JSON file.

That is everything that MUST survive according to [MS-MQQB] 3.1.1.3. Express messages are not saved.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from .packets import TxSequenceId, UserMessage
from .queues import Incoming, Outgoing, Sequence

if TYPE_CHECKING:
    from .peer import Peer


def save(peer: Peer, file: Path) -> None:
    """Write all data to a file next to the store, and then put that file in the store's place."""

    def pack(messages: list[UserMessage]) -> list[str]:
        return [peer.codec.pack(message).hex() for message in messages if message.recoverable]

    departures, arrivals = peer.departures, peer.arrivals
    state = {
        "message_id": peer.message_id,
        "stamps": [departures.last_stamp, departures.last_ordinal],
        "sequences": {
            name: [*one.identifier, one.next_number, one.last_number]
            for name, one in departures.sequences.items()
        },
        "outgoing": {
            queue.name: [
                [peer.codec.pack(entry.message).hex(), entry.transmitted]
                for entry in queue.entries
                if entry.message.recoverable
            ]
            for queue in departures.queues.values()
        },
        "awaiting": pack(departures.awaiting),
        "incoming": [
            [str(source), name, *one.identifier, one.number]
            for (source, name), one in arrivals.incoming.items()
        ],
        "history": [[str(source), number] for source, number in arrivals.history],
        "queues": {queue.name: pack(queue.messages) for queue in peer.queues},
        "dead_letters": pack(peer.dead_letters),
        "journal": pack(peer.journal),
    }
    beside = file.with_suffix(".new")
    beside.write_text(json.dumps(state))
    os.replace(beside, file)


def load(peer: Peer, file: Path) -> None:
    state: dict[str, Any] = json.loads(file.read_text())

    def unpack(packets: list[str]) -> list[UserMessage]:
        return [
            message
            for data in packets
            if isinstance(message := peer.codec.unpack(bytes.fromhex(data)), UserMessage)
        ]

    departures, arrivals = peer.departures, peer.arrivals
    peer.message_id = state["message_id"]
    departures.last_stamp, departures.last_ordinal = state["stamps"]
    for name, (stamp, ordinal, following, last) in state["sequences"].items():
        departures.sequences[name] = Sequence(TxSequenceId(stamp, ordinal), following, last)
    for name, entries in state["outgoing"].items():
        queue = departures.queue(name)
        for data, transmitted in entries:
            queue.entries += [Outgoing(message, transmitted) for message in unpack([data])]
    departures.awaiting = unpack(state["awaiting"])
    for source, name, stamp, ordinal, number in state["incoming"]:
        arrivals.incoming[UUID(source), name] = Incoming(TxSequenceId(stamp, ordinal), number)
    arrivals.history = {(UUID(source), number): peer.now() for source, number in state["history"]}
    for own in peer.queues:
        own.messages = unpack(state["queues"].get(own.name, []))
    peer.dead_letters, peer.journal = unpack(state["dead_letters"]), unpack(state["journal"])
