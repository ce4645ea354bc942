"""Families of metrics that follow Prometheus' conventions. All their names begin with `mqproto_`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from mqproto.base.foreign import shown

LABEL_LIMIT: Final = 200
"""The maximum length of a label, in characters."""

Samples: TypeAlias = Iterable[tuple[Sequence[str], float]]


def label_of(text: str) -> str:
    """Turn a text that somebody else wrote into a safe label."""
    return shown(text, LABEL_LIMIT)


def gauge(name: str, text: str, samples: Samples, labels: Sequence[str] = ()) -> Metric:
    """Return a gauge, which may rise and fall."""
    family = GaugeMetricFamily(f"mqproto_{name}", text, labels=labels)
    for values, value in samples:
        family.add_metric(values, value)
    return family


def counter(name: str, text: str, samples: Samples, labels: Sequence[str] = ()) -> Metric:
    """Return a counter, which only rises. The library appends `_total` to the name."""
    family = CounterMetricFamily(f"mqproto_{name}", text, labels=labels)
    for values, value in samples:
        family.add_metric(values, value)
    return family


class Histogram(NamedTuple):
    """The number of durations up to each bound (in seconds), the number of all durations, and their sum."""

    within: Iterable[tuple[float, int]]
    total: int
    total_s: float


def histogram(name: str, text: str, spread: Histogram) -> Metric:
    """Return a histogram of durations."""
    return histograms(name, text, [((), spread)])


def histograms(
    name: str, text: str, spreads: Iterable[tuple[Sequence[str], Histogram]], labels: Sequence[str] = ()
) -> Metric:
    """Return a histogram for each set of labels."""
    family = HistogramMetricFamily(f"mqproto_{name}", text, labels=labels)
    for values, (within, count, total_s) in spreads:
        buckets = [(str(bound_s), float(some)) for bound_s, some in within]
        family.add_metric(values, [*buckets, ("+Inf", count)], total_s)
    return family
