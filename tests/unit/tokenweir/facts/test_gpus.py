"""The GPU table."""

import pytest

from tokenweir import facts


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("A100-80G", "A100-80G"),
        ("a100", "A100-80G"),
        ("NVIDIA A100-SXM4-80GB", "A100-80G"),
        ("NVIDIA A100-PCIE-40GB", "A100-40G"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("Tesla T4", "T4"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA GeForce RTX 4090", "RTX-4090"),
        ("cpu", "CPU"),
    ],
)
def test_a_gpu_is_found_by_the_names_that_drivers_and_people_use(spelling: str, name: str) -> None:
    assert facts.gpu(spelling).name == name


@pytest.mark.parametrize("name", ["NVIDIA RTX A1000", "A100000", "H1000", "GeForce GT 40900"])
def test_a_gpu_whose_name_only_begins_like_a_known_one_is_not_known(name: str) -> None:
    with pytest.raises(facts.UnknownFactError):
        facts.gpu(name)


def test_an_unknown_gpu_is_named_together_with_the_known_ones() -> None:
    with pytest.raises(facts.UnknownFactError, match=r"unknown GPU 'Voodoo2'; known: .*A100-80G.*T4"):
        facts.gpu("Voodoo2")


def test_gpus_without_a_measured_run_say_that_they_are_derived() -> None:
    assert not facts.gpu("T4").measured
    assert not facts.gpu("L4").measured
    assert facts.gpu("A100-80G").measured
