"""What a frozen model said is asked for once, by whichever process, and never of other weights."""

import multiprocessing
import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from assay.labs.demos.outcomes import once
from assay.rl.policy import Sampling
from assay.tasks.helper_model import Usage


@dataclass
class Unknown:
    """A model that does not say what its answers depend on; counts what it is asked."""

    name: str = "frozen"
    fingerprint: str = "weights"
    identity: str = ""
    sampling: Sampling = field(default_factory=Sampling)
    usage: Usage = field(default_factory=Usage)
    asked: list[str] = field(default_factory=list)

    def lengths(self, texts: list[str]) -> list[int]:
        def compute(places) -> list[int]:
            self.asked += [texts[n] for n in places]
            return [len(texts[n]) for n in places]

        return once(self, texts, compute)  # type: ignore[arg-type]


@dataclass
class Frozen(Unknown):
    """A model that says it."""

    identity: str = "weights float32 cpu"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path))
    return tmp_path


def test_nothing_is_asked_twice_in_a_batch_or_in_another_process():
    first, second = Frozen(), Frozen()
    assert first.lengths(["a", "bbb", "a"]) == [1, 3, 1]
    assert second.lengths(["bbb", "cc", "a"]) == [3, 2, 1]
    assert (first.asked, second.asked) == (["a", "bbb"], ["cc"])
    assert (first.usage.remembered, second.usage.remembered) == (1, 2)


@pytest.mark.parametrize("identity", ["other float32 cpu", "weights bfloat16 cpu"])
def test_other_weights_or_numbers_are_asked_anew(identity):
    Frozen().lengths(["a"])
    other = Frozen(identity=identity)
    other.lengths(["a"])
    assert other.asked == ["a"]


def test_a_model_that_may_change_is_asked_again_in_the_next_call_alone(cache):
    frozen = Unknown()
    assert frozen.lengths(["a", "a"]) == frozen.lengths(["a", "a"]) == [1, 1]
    assert frozen.asked == ["a", "a"]
    assert not [*cache.iterdir()]


def write_many(cache: Path, start: int) -> None:
    """Another process that finds some of the same; a server of forks has the environment of the
    test that started it."""
    os.environ["ASSAY_CACHE"] = str(cache)
    for n in range(start, start + 30):
        Frozen().lengths([f"text {n}"])


def test_processes_that_write_at_once_lose_nothing(cache):
    with multiprocessing.get_context("forkserver").Pool(3) as pool:
        pool.starmap(write_many, [(cache, start) for start in (0, 10, 20)])
    frozen = Frozen()
    frozen.lengths([f"text {n}" for n in range(50)])
    assert not frozen.asked
