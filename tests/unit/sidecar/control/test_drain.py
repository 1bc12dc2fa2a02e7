"""When a drained backend is empty."""

from __future__ import annotations

from sidecar.control import drain


def test_it_is_done_when_no_gateway_has_anything_there():
    assert not drain.progress(2, gateways=1).done
    assert drain.progress(2, gateways=1).reason == "draining: 2 requests still run"
    assert drain.progress(1, gateways=1).reason == "draining: 1 request still runs"
    assert drain.progress(0, gateways=1).done


def test_it_is_not_called_done_while_no_gateway_reports():
    assert not drain.progress(0, gateways=0).done
