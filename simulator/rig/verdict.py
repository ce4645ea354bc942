"""The oracles that judge each run of the rig. Every oracle judges every scenario, or the table gives a reason why it
does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from mqproto.base.words import Word


class RunOracle(Word):
    """One way in which a run can break a promise."""

    LOST = "lost", "an accepted message did not come"
    DOUBLED = "doubled", "a message came more than once"
    REORDERED = "reordered", "a message came after one that was sent later"
    ALTERED = "altered", "a message came that was not sent, or not so"
    GROUPS = "order in groups", "a message was processed before one of its group that was sent earlier"
    AUDIT = "audit", "the audit contradicts those who have the messages"
    MEMORY = "memory", "a node had too much memory"
    LOG = "log", "a node wrote too much log"
    THROUGHPUT = "honest throughput", "too little came while something was wrong"


NO_GROUPS: Final = "no trigger is behind the queues, so nothing groups the messages"
NO_GATEWAY: Final = "only a gateway answers 200, and an audit counts these answers"
WAYPOINTS: Final = "nodes log each message at each waypoint, which is how the steps are counted"
BLANKS: Final[Mapping[str, Mapping[RunOracle, str]]] = {
    "demo": {
        RunOracle.GROUPS: NO_GROUPS,
        RunOracle.AUDIT: NO_GATEWAY,
        RunOracle.THROUGHPUT: "messages are sent at a pace; each outage is judged by when they flow again",
    },
    "crash": {
        RunOracle.GROUPS: NO_GROUPS,
        RunOracle.AUDIT: NO_GATEWAY,
        RunOracle.MEMORY: "no limit is derived for nodes that recover among bodies of up to 4 MB: 213 MB were seen",
        RunOracle.THROUGHPUT: "messages are sent at a pace, and nodes are down for most of the time",
    },
    "edges": {
        RunOracle.REORDERED: "its trigger groups by producer: there is no other order",
        RunOracle.LOG: WAYPOINTS,
        RunOracle.THROUGHPUT: "producers wait for answers, and all programs are killed in turn",
    },
    "validate": {
        RunOracle.GROUPS: "its trigger has all of a queue in order: nothing groups the messages",
        RunOracle.LOG: WAYPOINTS,
        RunOracle.THROUGHPUT: "a scenario sends a few messages, and each stage is counted",
    },
    "ends": {
        RunOracle.REORDERED: "each way has a message and, mostly, a queue of its own",
        RunOracle.GROUPS: "its triggers have all of a queue in order: nothing groups the messages",
        RunOracle.THROUGHPUT: "one message is sent after the other, and each is waited for",
    },
    "strangers": {RunOracle.GROUPS: NO_GROUPS, RunOracle.AUDIT: NO_GATEWAY},
}
"""For each scenario, the oracles that do not apply to it, with the reasons."""


Found = dict[RunOracle, list[str]]
"""Each oracle's findings, in words. An oracle that has judged a run and found nothing has an empty list."""


def by_oracle(oracles: Iterable[RunOracle], texts: Iterable[tuple[RunOracle, str]]) -> Found:
    """Return the texts grouped by their oracle. An oracle without any text has an empty list."""
    found: Found = {oracle: [] for oracle in oracles}
    for oracle, text in texts:
        found[oracle].append(text)
    return found


def judged(scenario: str, *found: Found) -> list[str]:
    """Return all findings of the oracles that apply to a scenario. Each of these oracles must have judged the run."""
    applies = [oracle for oracle in RunOracle if oracle not in BLANKS[scenario]]
    assert set(applies) <= {oracle for some in found for oracle in some}, f"not all have looked at {scenario}"
    return [text for oracle in applies for some in found for text in some.get(oracle, ())]


def named(found: Mapping[str, Found]) -> Found:
    """Return the findings about several things, each prefixed with the name of the thing that it is about."""
    return by_oracle(
        {oracle for some in found.values() for oracle in some},
        (
            (oracle, f"{name}: {text}")
            for name, some in found.items()
            for oracle, texts in some.items()
            for text in texts
        ),
    )
