"""A page that is made like the one before is read by where things stood there."""

from __future__ import annotations

import pytest

from sidecar.telemetry.page_layout import Layout

PAGE = b'# TYPE a gauge\na{n="1"} 1\na{n="2"} 2\n# TYPE b gauge\nb{n="1"} 3\nc 4\n'


def learnt(page: bytes = PAGE) -> Layout[tuple[bytes, bytes]]:
    """Knows where the samples of `a` and `b` stand."""
    layout: Layout[tuple[bytes, bytes]] = Layout()
    layout.learn(
        page, lambda name, labels: (name, labels) if name in {b"a", b"b"} else None, lambda what: -what[0][0]
    )
    return layout


def test_the_wanted_values_come_in_the_wanted_order():
    layout = learnt()
    assert layout.wanted == [(b"b", b'n="1"'), (b"a", b'n="1"'), (b"a", b'n="2"')]
    assert layout.values(PAGE) == [3, 1, 2]


def test_values_and_what_is_not_wanted_may_change():
    page = PAGE.replace(b"} 1", b"} 1.5e3").replace(b"c 4", b"c 17").replace(b"TYPE a", b"TYPE of a")
    assert learnt().values(page) == [3, 1500, 2]


@pytest.mark.parametrize(
    "page",
    [
        b"",
        PAGE.replace(b'n="2"', b'n="3"'),
        PAGE.replace(b'a{n="2"} 2\n', b""),
        PAGE + b'a{n="3"} 3\n',
        PAGE.replace(b"b{", b"d{"),
        PAGE.replace(b"} 2", b"} 2 1700000000000"),
        PAGE.replace(b"} 2", b"} two"),
        PAGE.replace(b'a{n="1"} 1\na{n="2"} 2', b'a{n="2"} 2\na{n="1"} 1'),
    ],
    ids=["empty", "label", "gone", "new", "name", "time", "word", "order"],
)
def test_a_page_made_otherwise_is_not_read(page):
    assert learnt().values(page) is None


def test_a_brace_within_a_label_is_no_end():
    page = PAGE.replace(b'n="2"', b'n="x} 2"')
    layout = learnt(page)
    assert layout.wanted[2] == (b"a", b'n="x} 2"')
    assert layout.values(page) == [3, 1, 2]


def test_who_has_learnt_nothing_reads_nothing():
    layout = learnt()
    layout.forget()
    assert layout.values(PAGE) is None
    assert learnt(b"c 4\n").values(b"c 4\n") is None
