"""Histograms as Prometheus reads them."""

from prometheus_client.parser import text_string_to_metric_families

from emulator.histogram import Histogram, family, labels_text


def test_buckets_are_cumulative_and_end_with_all() -> None:
    histogram = Histogram("wait_seconds", "Waiting.", (0.1, 1.0))
    histogram.observe(0.1)
    histogram.observe(0.5, times=3)
    histogram.observe(7)
    lines = "\n".join(histogram.lines({"model": "m"})) + "\n"
    (parsed,) = text_string_to_metric_families(lines)
    buckets = {sample.labels["le"]: sample.value for sample in parsed.samples if "le" in sample.labels}
    assert buckets == {"0.1": 1, "1.0": 4, "+Inf": 5}
    totals = {sample.name: sample.value for sample in parsed.samples if "le" not in sample.labels}
    assert totals == {"wait_seconds_sum": 8.6, "wait_seconds_count": 5}


def test_label_values_are_escaped() -> None:
    assert labels_text({"a": 'x"y\\z\n'}) == r'{a="x\"y\\z\n"}'


def test_a_family_has_its_help_and_type() -> None:
    assert list(family("up", "gauge", "Up.", [({}, 1.0)])) == ["# HELP up Up.", "# TYPE up gauge", "up 1.0"]
