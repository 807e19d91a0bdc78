"""The same row twice in one step is two groups: in advantages, weights, replays and records."""

import pytest
import torch

from assay.data.episode import Reward
from assay.rl.objectives import GrpoObjective
from assay.rl.policy import Sampling
from assay.train.checkpoint import Place
from assay.train.grpo import Grpo
from assay.train.sampled_groups import PromptStream, SingleTurn
from tests.train import toys


def uneven(pairs):
    """Right candidates of later visits earn less, so that a merged group would show."""
    seen: dict[str, int] = {}
    rewards = []
    for row, completion in pairs:
        number = seen[row.id] = seen.get(row.id, -1) + 1
        rewards.append(Reward(float(completion.tokens[0] == row.gold) + 10.0 * (number // 4)))
    return rewards


def prompts(rows: int, per_step: int, score=uneven) -> PromptStream:
    source = SingleTurn(toys.contexts(), Sampling(1.0, 1), 0, score, toys.decode)
    return PromptStream(toys.rows(rows), source, prompts=per_step, group=4, seed=0)


def step(stream: PromptStream, cursor: int = 0, **options):
    made = Grpo(stream, toys.settings(**options), GrpoObjective(), toys.decode)
    place = Place(cursor=cursor)
    return made.collect(toys.CandidatePolicy(), place, toys.MemoryRecorder())


def expected(samples) -> dict[str, float]:
    """GRPO's advantages, group by group as sampled: four completions each."""
    found = {}
    for i in range(0, len(samples), 4):
        members = samples[i : i + 4]
        values = torch.tensor([m.reward.value for m in members], dtype=torch.float64)
        spread = values.std() + 1e-6
        for member, value in zip(members, (values - values.mean()) / spread, strict=True):
            found[f"{member.row_id}#{member.sample}"] = float(value)
    return found


@pytest.mark.parametrize(("rows", "cursor"), [(1, 0), (3, 0), (5, 3)])
def test_each_visit_to_a_row_has_a_baseline_of_its_own(rows, cursor):
    """One row, few rows, and an epoch's border."""
    batch = step(prompts(rows, 4), cursor)
    assert len({r.row_id for r in batch.samples}) < 4
    given = {f"{r.row_id}#{r.sample}": r.advantage for r in batch.samples}
    assert any(given.values())
    assert given == pytest.approx(expected(batch.samples), abs=1e-6)


def test_a_refill_that_comes_by_the_same_row_again_is_a_group_of_its_own():
    # Two rows, and batches of two: the second batch comes by the same rows.
    batch = step(prompts(2, 2, toys.dull_at_first()), max_batches=2)
    assert batch.metrics["groups"] == 4
    first, second = batch.samples[:8], batch.samples[8:]
    assert {r.row_id for r in first} == {r.row_id for r in second}
    assert not any(r.advantage for r in first)
    given = {f"{r.row_id}#{r.sample}": r.advantage for r in second}
    assert any(given.values())
    assert given == pytest.approx(expected(second), abs=1e-6)
    assert [r.visit for r in batch.samples] == [0] * 8 + [1] * 8
