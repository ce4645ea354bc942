"""Families of metrics by Prometheus' conventions, all of them called `mqproto_...`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from mqproto.base.foreign import shown

LABEL_LIMIT: Final = 200
"""How long a label may be."""

Samples: TypeAlias = Iterable[tuple[Sequence[str], float]]


def label_of(text: str) -> str:
    """What others have written, as a label."""
    return shown(text, LABEL_LIMIT)


def gauge(name: str, text: str, samples: Samples, labels: Sequence[str] = ()) -> Metric:
    """What may rise and fall."""
    family = GaugeMetricFamily(f"mqproto_{name}", text, labels=labels)
    for values, value in samples:
        family.add_metric(values, value)
    return family


def counter(name: str, text: str, samples: Samples, labels: Sequence[str] = ()) -> Metric:
    """What only rises. The library puts `_total` behind the name."""
    family = CounterMetricFamily(f"mqproto_{name}", text, labels=labels)
    for values, value in samples:
        family.add_metric(values, value)
    return family


class Spread(NamedTuple):
    """How many took no longer than each bound in seconds, how many there were, and how long all took together."""

    within: Iterable[tuple[float, int]]
    total: int
    total_s: float


def histogram(name: str, text: str, spread: Spread) -> Metric:
    """How long something takes."""
    return histograms(name, text, [((), spread)])


def histograms(
    name: str, text: str, spreads: Iterable[tuple[Sequence[str], Spread]], labels: Sequence[str] = ()
) -> Metric:
    """The same of several."""
    family = HistogramMetricFamily(f"mqproto_{name}", text, labels=labels)
    for values, (within, count, total_s) in spreads:
        buckets = [(str(bound_s), float(some)) for bound_s, some in within]
        family.add_metric(values, [*buckets, ("+Inf", count)], total_s)
    return family
