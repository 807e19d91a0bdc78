"""Overlong punishment and entropy masks: TRL's own rows, and edges that they leave out."""

import json
from pathlib import Path
from typing import Any

from assay.train.pair_choice import overlong_punishment


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


def test_overlong_punishment_of_the_paper():
    # DAPO: limit 20480, buffer 4096.
    values = [overlong_punishment(n, 20480, 4096) for n in (0, 16384, 18432, 20480, 30000)]
    assert values == [0, 0, -0.5, -1, -1]
    assert overlong_punishment(18432, 20480, 4096, factor=0.4) == -0.2
