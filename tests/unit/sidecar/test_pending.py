"""What a reload cannot put into effect."""

from __future__ import annotations

from sidecar import pending
from tokenweir.config.loading import parse


def test_keys_that_are_read_at_a_start_are_named_and_others_are_not():
    before = parse("limits: {drain: 1m, deadline: 1m}", "t")
    after = parse("limits: {drain: 2m, deadline: 2m}\nlisten: {port: 9}\npolicy: hybrid", "t")
    assert pending.keys(before, after) == ["listen", "limits.drain"]
    assert pending.keys(after, after) == []


def test_every_such_key_exists():
    config = parse("", "t").model_dump()
    for key in pending.READ_AT_START:
        pending._value(config, key)
