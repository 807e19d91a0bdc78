"""A round learns from the first level of rows that its start has not passed, and says which."""

import json
from pathlib import Path

import pytest

from assay.errors import InputError
from assay.experiment.read_file import read_experiment
from assay.runs.history import History
from assay.runs.run_directory import RunDirectory
from assay.runs.run_files import read_level
from tests.from_files import run_from
from tests.tiny_labs import make_lab

TABLES = """
[stage.round1]
method = "grpo"
data   = "sums"
steps  = 2
prompts  = 2
group    = 2
sampling = { temperature = 1.0, max_tokens = 4 }
reward   = "accuracy"
curriculum = { by = "extra.level", passes = PASSES }

[evaluate.dev]
data   = "sums.dev"
reward = "accuracy"
role   = "select"
checkpoints = ["round1.all"]
sampling = { max_tokens = 4 }
"""


def levels_lab(folder: Path, passes: float) -> Path:
    folder.mkdir(exist_ok=True)
    tables = TABLES.replace("PASSES", str(passes))
    file = make_lab(folder, until="[stage.sft]", tables=tables)
    rows = [json.loads(line) for line in (folder / "sums.jsonl").read_text().splitlines()]
    written = [json.dumps({**row, "level": n % 2}) for n, row in enumerate(rows)]
    (folder / "sums.jsonl").write_text("\n".join(written) + "\n")
    return file


@pytest.mark.slow
@pytest.mark.parametrize(("passes", "level"), [(1.0, 0), (0.0, 1)])
def test_a_round_learns_from_the_first_level_that_is_not_passed(tmp_path, passes, level):
    file = levels_lab(tmp_path / "lab", passes)
    run = run_from(file, despite="a random model")
    chosen = read_level(run.path, "round1")
    assert chosen is not None and chosen.level == level
    assert [each for each, _ in chosen.rates] == [0, 1] and chosen.checkpoint == "base"
    assert levels_sampled(run, file) == {level}


def levels_sampled(run: RunDirectory, file: Path) -> set[int]:
    rows = map(json.loads, (file.parent / "sums.jsonl").read_text().splitlines())
    levels = {row["id"]: row["level"] for row in rows}
    history = History(run)
    return {levels[s.row] for step in (1, 2) for s in history.samples("round1", step)}


def test_levels_need_an_evaluation_that_measures_their_start(tmp_path):
    file = levels_lab(tmp_path / "lab", 0.5)
    file.write_text(file.read_text().replace('"round1.all"', '"base"'))
    with pytest.raises(InputError, match="no evaluation says which level the start has passed"):
        read_experiment(file)
    file.write_text(file.read_text().replace(", passes = 0.5", ""))
    with pytest.raises(InputError, match="a level is passed by a share"):
        read_experiment(file)
