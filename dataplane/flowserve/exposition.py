"""Prometheus' text format by its reference implementation, for figures that are at hand when they are asked for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
Samples = Iterable[tuple[Sequence[str], float]]


def gauge(name: str, text: str, labels: Sequence[str], samples: Samples) -> Metric:
    """A figure that goes up and down: its value by label values, in the order of ``labels``."""
    return _filled(GaugeMetricFamily(name, text, labels=labels), samples)


def counter(name: str, text: str, labels: Sequence[str], samples: Samples) -> Metric:
    """A figure that only grows, likewise."""
    return _filled(CounterMetricFamily(name, text, labels=labels), samples)


def page(metrics: Iterable[Metric]) -> str:
    """The text of all metrics."""
    return generate_latest(_Collected(metrics)).decode()


def _filled(family: GaugeMetricFamily | CounterMetricFamily, samples: Samples) -> Metric:
    for values, value in samples:
        family.add_metric(values, value)
    return family


class _Collected:
    """Metrics in the form of a collector."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        """All of them."""
        return self._metrics
