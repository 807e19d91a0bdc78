"""A process of several that is killed ends the work of the others, and leaves none behind."""

from threading import Timer

import pytest

from assay.errors import RunFailure
from tests.forked import kill
from tests.train.team_of_forks import POLICIES, Case, batches, team_of


def test_a_rank_that_is_killed_ends_a_collective_within_seconds(tmp_path) -> None:
    updates, objective = batches(POLICIES["full"](), "sft", "token_mean", 1)
    with (
        team_of(2, tmp_path) as forks,
        pytest.raises(RunFailure),
        forks.opened(Case("full")) as ranked,
    ):
        Timer(0.2, kill, [forks.processes[0]]).start()
        while True:
            ranked.accumulate(updates[0], objective, 60)
            ranked.module.zero_grad(set_to_none=False)
