"""`[milestone.NAME]` on a verdict: what cannot be scored is refused in one line."""

from pathlib import Path

import pytest

from assay.errors import InputError
from assay.experiment.experiment import Experiment
from assay.experiment.read_file import read_experiment
from assay.experiment.toml_write import experiment_toml
from tests.experiment.spec_texts import write_spec

CHANGES = (
    ('start = "sft.best"\nsteps = 15', "steps = 25\ncheckpoint_every = 10"),
    ('"sft.all"]', '"base", "rl.all"]'),
    ('"sft.best", "rl.last"]', '"sft.last", "rl.last", "rl.step-10"]'),
)
MILESTONE = {
    "stage": '"rl"',
    "step": "20",
    "evaluation": '"dev"',
    "verdict": '"better"',
    "against": '"base"',
}


def read(folder: Path, **changes: str | None) -> Experiment:
    values = {key: value for key, value in (MILESTONE | changes).items() if value is not None}
    table = "".join(f"{key} = {value}\n" for key, value in values.items())
    file = write_spec(folder, *CHANGES)
    file.write_text(f"{file.read_text()}\n[milestone.above]\n{table}")
    return read_experiment(file)


def test_a_verdict_is_read_and_written_again(tmp_path):
    experiment = read(tmp_path)
    spec = experiment.milestone["above"]
    assert (spec.evaluation, spec.verdict, spec.against) == ("dev", "better", "base")
    file = tmp_path / "again.toml"
    file.write_text(experiment_toml(experiment))
    assert read_experiment(file).milestone == experiment.milestone


def test_checkpoints_that_are_made_and_measured_can_be_compared(tmp_path):
    assert read(tmp_path, against='"rl.step-10"').milestone["above"].evaluation
    other = read(tmp_path, evaluation='"bfcl"', step="10", against='"sft.last"')
    assert other.milestone["above"].evaluation == "bfcl"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"evaluation": '"devv"'}, "evaluation: no evaluation 'devv' (did you mean 'dev'?"),
        ({"evaluation": None}, "verdict: a verdict needs the evaluation that gives it"),
        ({"verdict": None}, "verdict: an evaluation needs the verdict that is expected"),
        ({"step": "15"}, "no checkpoint is made at step 15 (write 25, the last, or a multiple"),
        ({"against": '"rl.step-20"'}, "against: it is the checkpoint itself"),
        ({"against": '"sft.last"'}, "evaluation 'dev' does not measure sft.last (add"),
    ],
)
def test_what_cannot_be_scored_is_refused_by_field(tmp_path, changes, words):
    with pytest.raises(InputError) as refused:
        read(tmp_path, **changes)
    text = str(refused.value)
    assert words in text and "milestone.above" in text
