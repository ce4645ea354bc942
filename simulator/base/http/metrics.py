"""Families of metrics by Prometheus' conventions, all of them called `mqproto_...`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

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


def histogram(
    name: str, text: str, within: Iterable[tuple[float, int]], count: int, total_s: float
) -> Metric:
    """How many took no longer than each bound in seconds, how many there were, and how long all took together."""
    family = HistogramMetricFamily(f"mqproto_{name}", text)
    buckets = [(str(bound_s), float(some)) for bound_s, some in within]
    family.add_metric((), [*buckets, ("+Inf", count)], total_s)
    return family
