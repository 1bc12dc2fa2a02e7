"""When an engine is warm."""

from __future__ import annotations

from sidecar.control.warm_up import WarmUp
from tokenweir.config.control import RampConfig

CONFIG = RampConfig()


def warm(*times):
    made = WarmUp(0)
    for time in times:
        made.answered(time)
    return made


def test_it_is_warm_when_the_last_three_times_agree():
    assert warm(2000, 400, 120, 110).over(CONFIG, 0) is None
    assert warm(2000, 400, 120, 110, 115).over(CONFIG, 0) == "warm: time to first token steady at 115 ms"


def test_small_differences_are_noise():
    assert warm(4, 12, 20).steady


def test_after_its_most_prompts_it_is_over():
    times = [1000 * (k % 2 + 1) for k in range(8)]
    assert warm(*times).over(CONFIG, 0) == "warmed with 8 prompts, not steady yet"


def test_an_engine_that_refuses_the_prompts_is_not_waited_for():
    made = warm()
    for _ in range(3):
        made.refused()
    assert made.over(CONFIG, 0) == "not warmed: 3 prompts in a row were refused"


def test_an_answer_makes_good_for_refusals():
    made = warm()
    made.refused()
    made.refused()
    made.answered(10)
    made.refused()
    assert made.over(CONFIG, 0) is None


def test_it_has_a_limit_in_time():
    assert warm(100).over(CONFIG, 60_000) == "warm-up ended after 60 s"


def test_how_far_it_has_come_is_told():
    assert warm(100, 50).text() == "warming: 2 prompts answered, the last in 50 ms"
