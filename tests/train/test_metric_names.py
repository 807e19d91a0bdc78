"""The names that files may watch are those that methods write."""

import pytest

from assay.train.likelihood import Rce, Rft, Sft
from assay.train.metric_names import METHODS, NAMES, is_written
from assay.train.update import constant
from tests.train import toys
from tests.train.test_distill import distill, tiny_policy
from tests.train.test_dpo import dpo
from tests.train.test_methods import grpo, prompts, run

MADE = {
    "sft": lambda: Sft(toys.right_answers(8), 4, 0),
    "rft": lambda: Rft(prompts(), 1.0, 16, 1.0, toys.decode),
    "rce": lambda: Rce(prompts(), constant(1.0), 1.0, toys.decode),
    "grpo": grpo,
    "dpo": dpo,
    "distill": distill,
}
APART = ("self_check", "thought", "scheduled", "scheduled_grpo", "rewards", "proof")
NOT_HERE = frozenset({"kl", "kl_loss", "entropy_bonus", "validation_loss"}).union(
    *(NAMES[group] for group in APART)
)
NOT_HERE |= {"clip_raised_share", "groups_replaced", "masked_share", "entropy_cut_share"}
NOT_HERE |= {"left_out_share", "host_memory_mb"}
"""Written by a language model's first update, by EGPO, where the loss has the term
(`test_loss_parts`), a setting has a schedule (`test_schedules`), a reward has such parts
(`tests/tasks/test_reward_metrics.py`) or an engine tells entropies
(`tests/lab/run/test_proven_sampling.py`), where there is a reference or rows to validate on
(`test_validation`), where a part of the algorithm is set (`test_own_parts`), and beside a GPU."""


@pytest.mark.parametrize("method", METHODS)
def test_a_methods_names_are_those_of_its_metrics(method: str) -> None:
    _, recorder = run(MADE[method](), 2, policy=tiny_policy() if method == "distill" else None)
    written = {name for line in recorder.lines for name in line} - {"step"}
    assert [name for name in written if not is_written(name, method)] == []
    assert METHODS[method] - written <= NOT_HERE


def test_reward_parts_are_metrics_of_methods_that_sample() -> None:
    assert is_written("part/format", "grpo")
    assert not is_written("part/format", "sft")
