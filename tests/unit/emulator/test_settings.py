"""What a server may be started with."""

import pytest

from emulator.settings import Settings, SettingsError
from tokenweir import facts


def test_the_capacity_is_what_the_facts_say_unless_given() -> None:
    assert Settings().kv_tokens == facts.kv_capacity("A100-80G", "llama-3-8b")
    assert Settings(capacity=1000).kv_tokens == 992


def test_the_context_is_the_models_at_most_the_capacity() -> None:
    assert Settings().context == 8192
    assert Settings(capacity=1600).context == 1600
    assert Settings(max_model_len=500).context == 500


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"speed": 0.0}, "speed must be above 0"),
        ({"gpus": 0}, "gpus must be at least 1"),
        ({"startup_seconds": -1.0}, "startup seconds must not be negative"),
        ({"kv_bytes": -1}, "KV bytes of a token must not be negative"),
        ({"capacity": 15}, "capacity must be at least one block of 16 tokens"),
        ({"capacity": 1600, "max_model_len": 1601}, "between 2 and the KV capacity of 1600"),
    ],
)
def test_settings_that_make_no_sense_are_refused(change: dict[str, float], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        Settings(**change)  # type: ignore[arg-type]
