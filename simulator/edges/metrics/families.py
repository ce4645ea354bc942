"""The metrics of a gateway and of a trigger, made from their figures.

From the start, each counter has all possible labels, with the value 0, because Prometheus does not see an increase in a
series that did not exist before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from prometheus_client import Metric, ProcessCollector

from mqproto.base.durations import Durations
from mqproto.simulator.base.http.metrics import Histogram, counter, gauge, histogram, label_of


class Edge(NamedTuple):
    """The program whose metrics these are.

    name: the program's name among the gateways or triggers of its node.
    """

    name: str
    node: str
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayFigures:
    """A gateway's counts and its current state.

    messages: the number of messages, keyed by queue and outcome.
    refused: the number of refusals, keyed by code.
    ended: the number of messages that ended, keyed by class.
    told: the number of attempts to report ends of messages, keyed by outcome; None if there are no reports.
    """

    messages: Mapping[tuple[str, str], int]
    refused: Mapping[Any, int]
    answered: Durations
    under_way: int
    connections: int
    turned_away: int
    ended: Mapping[str, int]
    told: Mapping[str, int] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerFigures:
    """A trigger's counts and its current state.

    answers: the number of the consumer's answers, keyed by kind.
    deliveries: the number of deliveries, keyed by outcome.
    held_s: the number of seconds for which its queue has been held; 0 if it is not held.
    failures: the number of successive failures that hold it.
    """

    queue: str
    leads: bool
    epoch: int
    is_connected: bool
    calls: int
    answers: Mapping[str, int]
    answered: Durations
    deliveries: Mapping[Any, int]
    held_s: float
    failures: int
    told: Mapping[str, int] | None


def of_gateway(edge: Edge, figures: GatewayFigures) -> Iterator[Metric]:
    """Yield all metrics of a gateway."""
    yield _info("gateway", edge._asdict())
    messages = [((label_of(queue), what), count) for (queue, what), count in figures.messages.items()]
    text = "Messages that were answered 200: accepted, or dropped as duplicates."
    yield counter("gateway_messages", text, messages, ("queue", "outcome"))
    yield _counts("gateway_refused_requests", "Refused requests, by code.", figures.refused, "code")
    yield _durations(
        "gateway_answer_duration_seconds", "From the head of a message to its answer 200.", figures.answered
    )
    yield gauge("gateway_messages_under_way", "Messages without an answer.", [((), figures.under_way)])
    yield gauge("gateway_connections", "Connections of producers.", [((), figures.connections)])
    away = [((), figures.turned_away)]
    yield counter("gateway_turned_away_connections", "Connections refused for lack of room.", away)
    yield _counts("gateway_ended_messages", "Ended messages; ACK_RECEIVE: received.", figures.ended, "class")
    if figures.told is not None:
        text = "Attempts to tell a URL how a message ended."
        yield _counts("gateway_callbacks", text, figures.told, "outcome")
    yield from ProcessCollector(registry=None).collect()


def of_trigger(edge: Edge, figures: TriggerFigures) -> Iterator[Metric]:
    """Yield all metrics of a trigger."""
    yield _info("trigger", {**edge._asdict(), "queue": label_of(figures.queue)})
    yield gauge("trigger_leading", "1 if it delivers, 0 if it stands by.", [((), figures.leads)])
    yield gauge("trigger_epoch", "The number of its last leadership; 0: no history.", [((), figures.epoch)])
    yield gauge("trigger_node_connected", "Whether its node answers.", [((), figures.is_connected)])
    yield gauge("trigger_calls", "Calls of its consumer under way.", [((), figures.calls)])
    yield _counts("trigger_answers", "Answers of its consumer.", figures.answers, "answer")
    yield _durations("trigger_answer_duration_seconds", "From a call to its answer.", figures.answered)
    yield _counts("trigger_deliveries", "Deliveries, by how they ended.", figures.deliveries, "ending")
    text = "How long its queue has been held; 0 if it is not."
    yield gauge("trigger_held_seconds", text, [((), figures.held_s)])
    yield gauge("trigger_held_failures", "Failures in a row that hold it.", [((), figures.failures)])
    if figures.told is not None:
        yield _counts("trigger_hooks", "Attempts to tell a URL how a message ended.", figures.told, "outcome")
    yield from ProcessCollector(registry=None).collect()


def _info(kind: str, labels: Mapping[str, str]) -> Metric:
    return gauge(f"{kind}_info", f"Which {kind} this is.", [([*labels.values()], 1)], [*labels])


def _counts(name: str, text: str, counts: Mapping[Any, int], label: str) -> Metric:
    return counter(name, text, [((str(each),), count) for each, count in counts.items()], (label,))


def _durations(name: str, text: str, durations: Durations) -> Metric:
    return histogram(name, text, Histogram(durations.within, durations.count, durations.total_s))
