"""The stage of pairs that algorithms.md shows is one."""

from pathlib import Path

from assay.experiment.read_file import read_experiment
from assay.experiment.stage_tables import DpoStage
from assay.train.pair_choice import POWER
from tests.docs.pages import blocks


def test_the_pages_stage_draws_pairs_as_scoreflow_does(tmp_path: Path) -> None:
    (text,) = [block for block in blocks("algorithms.md", "toml") if '"dpo"' in block]
    (tmp_path / "x.toml").write_text('name = "x"\ntask = "math"\n' + text)
    stage = read_experiment(tmp_path / "x.toml").stage["prefer"]
    assert isinstance(stage, DpoStage) and stage.scores == "score"
    assert (stage.pairs.total, stage.pairs.power or POWER) == (2000, 3.0)
