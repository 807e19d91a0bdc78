"""What `[engine] ranks` and `sharded` cannot be is refused in one line that names both sides."""

import os
from typing import Any

import pytest

from assay.engines.ranks import check_ranks, threads_of
from assay.errors import InputError
from assay.experiment.experiment import Experiment, engines
from assay.experiment.tables import EngineSpec

PLAIN: dict[str, Any] = {"name": "e", "task": "math", "model": "path:model"}
CORES = len(os.sched_getaffinity(0))


def refusals(**engine) -> list[str]:
    table = Experiment.model_construct(**PLAIN, engine=EngineSpec(**engine))
    return [each.message() for each in engines(table)]


def test_more_ranks_than_cores_are_refused_naming_both(monkeypatch) -> None:
    check_ranks(CORES)
    with pytest.raises(InputError, match=f"{CORES + 1} ranks, and this machine has {CORES} cores"):
        check_ranks(CORES + 1)


def test_ranks_share_the_cores_and_keep_to_what_the_user_set(monkeypatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    monkeypatch.setattr("torch.get_num_threads", lambda: 8)
    assert [threads_of(n) for n in (1, 2, 3, 8)] == [8, 4, 2, 1]
    monkeypatch.setattr("torch.get_num_threads", lambda: 1)
    assert threads_of(2) == 1


def test_weights_are_not_sharded_over_one_process_or_beside_vllm() -> None:
    assert not refusals(ranks=2, sharded=True)
    assert not refusals(ranks=1, sharded=False)
    assert "one process holds all weights" in refusals(sharded=True)[0]
    assert "proven with whole weights" in refusals(sample="vllm", ranks=2, sharded=True)[0]
