"""Overlong punishment and entropy masks: TRL's own rows, and edges that they leave out."""

from pathlib import Path
from typing import Any

from assay.train.pair_choice import overlong_punishment
from tests.json_lines import json_lines


def trl_rows(shared: Path, function: str) -> list[dict[str, Any]]:
    every = json_lines(shared / "data" / "oracle" / "trl_fixture_rows.jsonl")
    return [row for row in every if row["function"] == function]


def test_overlong_punishment_agrees_with_trl(shared: Path):
    checked = trl_rows(shared, "soft_overlong_punishment")
    for row in checked:
        params = row["params"]
        value = overlong_punishment(
            row["input"]["completion_len"],
            params["max_completion_len"],
            params["soft_punish_cache"],
        )
        assert abs(value - row["expected"]) <= row["tol"]
    assert len(checked) == 2


def test_overlong_punishment_of_the_paper():
    # DAPO: limit 20480, buffer 4096.
    values = [overlong_punishment(n, 20480, 4096) for n in (0, 16384, 18432, 20480, 30000)]
    assert values == [0, 0, -0.5, -1, -1]
    assert overlong_punishment(18432, 20480, 4096, factor=0.4) == -0.2
