"""Which reading counts as memory use (docs/architecture.md, rule 3)."""

from __future__ import annotations

import pytest

from sidecar.control.memory import memory_use
from sidecar.telemetry.readings import CardReading, EngineReading, Record
from tokenweir.config.models import BackendConfig

ENGINE = EngineReading(at=900, source="vllm", kv_use=0.2)
CARD = CardReading(at=800, source="dcgm", memory_use=0.92)


def use(memory="auto", engine=None, card=None, now=1000):
    config = BackendConfig(url="http://10.0.0.1:8000", memory=memory)
    return memory_use(config, Record(engine=engine, card=card), now)


def test_kv_use_counts_where_the_engine_tells_it_however_full_the_card_is():
    memory = use(engine=ENGINE, card=CARD)
    assert (memory.use, memory.age_ms) == (0.2, 100)
    assert "KV 20%" in memory.reason


def test_the_card_counts_for_an_engine_that_tells_none():
    memory = use(engine=EngineReading(at=900, source="llamacpp"), card=CARD)
    assert (memory.use, memory.age_ms) == (0.92, 200)


def test_the_operator_may_say_which_counts():
    assert use("card", ENGINE, CARD).use == 0.92
    assert use("kv", EngineReading(at=900, source="llamacpp"), CARD).use is None


@pytest.mark.parametrize("memory", ["auto", "kv", "card"])
def test_what_nobody_tells_is_not_invented(memory):
    result = use(memory)
    assert (result.use, result.age_ms) == (None, None)
    assert result.reason


def test_an_old_reading_is_not_believed():
    assert use(engine=ENGINE, now=900 + 10_001).use is None
