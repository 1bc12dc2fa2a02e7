"""XID errors count when they come up, not while the gauge remembers them."""

from __future__ import annotations

from sidecar.telemetry.readings import Card
from sidecar.telemetry.xid import SAME_MS, XidEdges


def codes(edges, *cards, at=0.0):
    return [(event.card, event.code) for event in edges.observe(cards, at)]


def test_what_was_there_at_the_first_look_is_old_news():
    edges = XidEdges()
    assert codes(edges, Card("a", xid=79, xid_counts={79: 3})) == []
    assert codes(edges, Card("a", xid=79, xid_counts={79: 3})) == []


def test_a_gauge_that_changes_is_an_error_once():
    edges = XidEdges()
    codes(edges, Card("a", xid=0), Card("b", xid=0))
    assert codes(edges, Card("a", xid=0), Card("b", xid=31)) == [("b", 31)]
    assert codes(edges, Card("a", xid=0), Card("b", xid=31)) == []
    assert codes(edges, Card("a", xid=0), Card("b", xid=43)) == [("b", 43)]


def test_a_gauge_that_falls_to_zero_is_a_driver_loaded_anew():
    edges = XidEdges()
    codes(edges, Card("a", xid=79))
    assert codes(edges, Card("a", xid=0)) == []
    assert codes(edges, Card("a", xid=79)) == [("a", 79)]


def test_the_same_error_once_more_shows_in_the_counts_alone():
    edges = XidEdges()
    codes(edges, Card("a", xid=13, xid_counts={13: 1}))
    assert codes(edges, Card("a", xid=13, xid_counts={13: 2})) == [("a", 13)]


def test_counts_of_a_window_that_run_out_are_no_errors():
    edges = XidEdges()
    codes(edges, Card("a", xid=13, xid_counts={13: 2}))
    assert codes(edges, Card("a", xid=13, xid_counts={13: 1})) == []
    assert codes(edges, Card("a", xid=13)) == []
    assert codes(edges, Card("a", xid=13, xid_counts={13: 1})) == [("a", 13)]


def test_the_first_count_of_a_watched_card_is_an_error_once():
    edges = XidEdges()
    codes(edges, Card("a", xid=0))
    assert codes(edges, Card("a", xid=31, xid_counts={31: 1})) == [("a", 31)]
    assert codes(edges, Card("a", xid=31, xid_counts={31: 1})) == []


def test_an_error_that_the_gauge_tells_before_the_count_is_one_error():
    edges = XidEdges()
    codes(edges, Card("a", xid=0), at=0)
    assert codes(edges, Card("a", xid=31), at=500) == [("a", 31)]
    assert codes(edges, Card("a", xid=31, xid_counts={31: 1}), at=1000) == []
    assert codes(edges, Card("a", xid=31, xid_counts={31: 2}), at=1000 + SAME_MS) == [("a", 31)]


def test_two_errors_at_once_are_both_told():
    edges = XidEdges()
    codes(edges, Card("a", xid=0, xid_counts={}))
    assert codes(edges, Card("a", xid=45, xid_counts={31: 1, 45: 1})) == [("a", 31), ("a", 45)]
