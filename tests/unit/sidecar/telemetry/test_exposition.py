"""The search for single metrics in a Prometheus page."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Gauge, Histogram, generate_latest

from sidecar.telemetry import exposition
from sidecar.telemetry.exposition import Page, label


def test_sums_all_label_sets_of_a_metric(page):
    assert page("vllm_data_parallel").total("vllm:num_requests_running") == 10


def test_does_not_take_a_metric_that_only_begins_alike(page):
    assert page("vllm").total("vllm:num_requests_waiting") == 3
    assert page("vllm").total("vllm:num_requests") is None


def test_finds_metrics_on_a_page_without_type_lines():
    page = Page(b'a{x="1"} 1\na{x="2"} 2\nb 3\n')
    assert (page.total("a"), page.total("b"), page.total("c")) == (3, 3, None)


def test_leaves_out_values_that_are_no_finite_numbers():
    page = Page(b'# TYPE a gauge\na{x="1"} NaN\na{x="2"} +Inf\na{x="3"} 4\na{x="4"} nonsense\n')
    assert page.total("a") == 4


def test_ignores_timestamps_and_reads_a_last_line_without_newline():
    assert Page(b"a 5 1700000000000").total("a") == 5


def test_a_brace_or_a_blank_inside_a_label_does_no_harm():
    page = Page(b'# TYPE a gauge\na{x="} 9 {",y="k=\\"v\\""} 2\n')
    ((labels, value),) = page.samples("a")
    assert value == 2
    assert label(labels, "x") == "} 9 {"
    assert label(labels, "y") == 'k="v"'


def test_a_label_whose_name_ends_alike_is_not_taken():
    assert label(b'num_gpu_blocks_override="7",num_gpu_blocks="5"', "num_gpu_blocks") == "5"
    assert label(b'xnum_gpu_blocks="7"', "num_gpu_blocks") is None


def test_a_page_sent_as_one_json_string_is_read():
    text = '# TYPE a gauge\na{x="1"} 3\n'
    assert Page(json.dumps(text).encode()).total("a") == 3


def test_finds_a_metric_again_after_the_page_shifted_and_after_it_vanished():
    places: dict[str, int] = {}
    first = b"# TYPE pad gauge\npad 1\n# TYPE a gauge\na 1\n"
    assert Page(first, places).total("a") == 1
    shifted = b"# TYPE pad gauge\n" + b"pad 1\n" * 5000 + b"# TYPE a gauge\na 22\n"
    assert Page(shifted, places).total("a") == 22
    assert Page(b"# TYPE pad gauge\npad 1\n", places).total("a") is None
    assert Page(first, places).total("a") == 1


def test_a_histogram_is_summed_over_label_sets_that_stand_apart():
    page = Page(
        b"# TYPE h histogram\n"
        b'h_bucket{le="1",x="a"} 1\nh_bucket{le="+Inf",x="a"} 2\nh_count{x="a"} 2\nh_sum{x="a"} 5\n'
        b'h_bucket{le="1",x="b"} 3\nh_bucket{le="+Inf",x="b"} 4\nh_count{x="b"} 4\nh_sum{x="b"} 7\n'
        b"# TYPE h_sum_of_others gauge\nh_sum_of_others 100\n"
    )
    assert page.histogram("h") == (12, 6)
    assert page.histogram("h", having=b'x="b"') == (7, 4)
    assert page.buckets("h") == {1.0: 4, float("inf"): 6}
    assert page.histogram("g") is None
    assert page.buckets("g") is None


def test_a_metric_that_was_long_missing_is_found_within_some_pages_of_its_return():
    places: dict[str, int] = {}
    for _ in range(100):
        assert Page(b"# TYPE b gauge\nb 1\n", places).total("a") is None
    looks = 0
    while Page(b"# TYPE b gauge\nb 1\n# TYPE a gauge\na 2\n", places).total("a") is None:
        looks += 1
        assert looks <= exposition.SEARCH_EVERY


@given(st.lists(st.tuples(st.text(max_size=8), st.floats(-1e9, 1e9)), max_size=8, unique_by=lambda p: p[0]))
def test_agrees_with_the_reference_writer_of_the_format(samples):
    registry = CollectorRegistry()
    gauge = Gauge("engine:wanted", "a text with engine:wanted 1 in it", ["who"], registry=registry)
    Gauge("engine:wanted_more", "another", registry=registry).set(7)
    for who, value in samples:
        gauge.labels(who).set(value)
    found = {
        label(labels, "who"): value
        for labels, value in Page(generate_latest(registry)).samples("engine:wanted")
    }
    assert found == dict(samples)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 100)), min_size=1, max_size=30))
def test_histograms_agree_with_the_reference_writer(observations):
    registry = CollectorRegistry()
    histogram = Histogram("engine:time", "times", ["who"], registry=registry, buckets=[1, 10, 50])
    for who, value in observations:
        histogram.labels(who).observe(value)
    page = Page(generate_latest(registry))
    total, count = page.histogram("engine:time")
    assert count == len(observations)
    assert abs(total - sum(value for _, value in observations)) < 1e-6
    assert page.buckets("engine:time")[10.0] == sum(value <= 10 for _, value in observations)


def test_a_page_of_sixty_kilobytes_costs_less_than_half_a_millisecond():
    lines = [
        f'vllm:h{n}_bucket{{le="{b}",model_name="meta-llama/Llama-3.1-8B"}} {b}'
        for n in range(40)
        for b in range(25)
    ]
    text = (
        "# TYPE vllm:h gauge\n"
        + "\n".join(lines)
        + "\n# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running 3\n"
    )
    places: dict[str, int] = {}
    best = float("inf")
    for _ in range(50):
        began = time.thread_time()
        assert Page(text.encode(), places).total("vllm:num_requests_running") == 3
        best = min(best, time.thread_time() - began)
    assert best < 0.5e-3


@pytest.mark.parametrize(
    "lines",
    [
        'm{a="1"} 1\nm{a="2"} 2\n',
        'm{a="1"} 1 1700000000000\nm{a="2"} 2\n',
        'm{a="} 7"} 1\nm{a="2"} 2\n',
        'm{a="2"} 2\nm{a="1"} 1\n',
        'm{a="10"} 1\nm{a="1"} 2\n',
        'm{a="1"} NaN\nm{a="2"} 2\n',
        "m 3\n",
        'm{a="1"} 1\nm_created{a="1"} 9\n',
    ],
)
def test_a_total_is_the_sum_of_the_samples(lines):
    page = f"# TYPE m gauge\n{lines}# TYPE n gauge\nn 5\n".encode()
    assert Page(page).total("m") == sum(value for _, value in Page(page).samples("m"))


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        ("h_count 3\nh_sum 6\n", (6, 3)),
        ("h_sum 6\nh_count 3\n", (6, 3)),
        ('h_count{e="0"} 3\nh_sum{e="0"} 6\nh_count{e="1"} 1\nh_sum{e="1"} 2\n', (8, 4)),
        ('h_count{e="0"} 3\nh_sum{e="0"} NaN\nh_count{e="1"} 1\nh_sum{e="1"} 2\n', (2, 1)),
        ('h_count{e="0"} 3 17\nh_sum{e="0"} 6 17\n', (6, 3)),
    ],
)
def test_sums_and_counts_are_found_in_every_order(lines, wanted):
    page = f'# TYPE h histogram\nh_bucket{{le="+Inf"}} 3\n{lines}# TYPE n gauge\nn 5\n'.encode()
    assert Page(page).histogram("h") == wanted
    assert Page(page.removesuffix(b"# TYPE n gauge\nn 5\n")).histogram("h") == wanted


@pytest.mark.parametrize(
    "label",
    ['le="0.5"', 'model="a",le="0.5"', 'le="0.5",model="a"', 'role="x",le="0.5"', 'handle="9,le=x",le="0.5"'],
)
def test_the_bound_of_a_bucket_is_found_among_its_labels(label):
    page = f"# TYPE h histogram\nh_bucket{{{label}}} 3\nh_sum 1\nh_count 4\n# TYPE i gauge\ni 1\n"
    assert Page(page.encode()).buckets("h") == {0.5: 3}


def test_buckets_of_several_label_sets_add_up_and_are_found_where_they_were():
    def page(count):
        sets = "".join(
            f'h_bucket{{e="{e}",le="1"}} {count}\nh_bucket{{e="{e}",le="+Inf"}} {2 * count}\n'
            f'h_count{{e="{e}"}} 2\nh_sum{{e="{e}"}} 3\n'
            for e in "ab"
        )
        return f"# TYPE h histogram\n{sets}# TYPE i gauge\ni 1\n".encode()

    places = {}
    for count in (1, 7, 1000):
        assert Page(page(count), places).buckets("h") == {1: 2 * count, float("inf"): 4 * count}
