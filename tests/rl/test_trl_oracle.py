"""Overlong punishment and entropy masks: TRL's own rows, and edges that they leave out."""

import json
import math
from pathlib import Path
from typing import Any

import torch

from assay.rl.entropy import entropy_from_logits, high_entropy_mask
from assay.rl.shaping import overlong_punishment


def rows(shared: Path, function: str) -> list[dict[str, Any]]:
    path = shared / "data" / "oracle" / "trl_fixture_rows.jsonl"
    every = [json.loads(line) for line in path.read_text().splitlines()]
    return [row for row in every if row["function"] == function]


def test_overlong_punishment_agrees_with_trl(shared: Path):
    checked = rows(shared, "soft_overlong_punishment")
    for row in checked:
        params = row["params"]
        value = overlong_punishment(
            row["input"]["completion_len"],
            params["max_completion_len"],
            params["soft_punish_cache"],
        )
        assert abs(value - row["expected"]) <= row["tol"]
    assert len(checked) == 2


def test_high_entropy_mask_agrees_with_trl(shared: Path):
    checked = rows(shared, "high_entropy_mask")
    for row in checked:
        entropy_S = torch.tensor(row["input"]["entropies"]).flatten()
        mask_S = torch.tensor(row["input"]["mask"]).bool().flatten()
        mask = high_entropy_mask(entropy_S, mask_S, row["params"]["threshold"])
        assert mask.int().tolist() == torch.tensor(row["expected"]).flatten().tolist()
    assert len(checked) == 3


def test_overlong_punishment_of_the_paper():
    # DAPO: limit 20480, buffer 4096.
    values = [overlong_punishment(n, 20480, 4096) for n in (0, 16384, 18432, 20480, 30000)]
    assert values == [0, 0, -0.5, -1, -1]
    assert overlong_punishment(18432, 20480, 4096, factor=0.4) == -0.2


def test_impossible_tokens_add_nothing_to_entropy():
    logits_SV = torch.tensor([[0.0, 0.0, -torch.inf], [3.0, -torch.inf, -torch.inf]])
    torch.testing.assert_close(entropy_from_logits(logits_SV), torch.tensor([math.log(2), 0]))


def test_high_entropy_threshold_is_the_quantile_of_trained_tokens_alone():
    generator = torch.Generator().manual_seed(0)
    entropy_S = torch.rand(1001, generator=generator)
    mask_S = torch.rand(1001, generator=generator) < 0.5
    mask = high_entropy_mask(entropy_S, mask_S, 0.8)
    expected = mask_S & (entropy_S >= torch.quantile(entropy_S[mask_S], 0.8))
    assert torch.equal(mask, expected)
