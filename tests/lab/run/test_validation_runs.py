"""An SFT stage with dropout and validation rows: recorded, resumed bit by bit, checked, shown."""

import json
from pathlib import Path

import pytest

from assay.errors import InputError
from assay.lab.monitor.progress import progress
from assay.lab.run.runner import resume, start
from assay.pages.facts import gather
from assay.pages.run_page import write_report
from assay.runs.run_directory import RunDirectory, runs_of
from tests.lab.run.test_kill import everything
from tests.lab.run.test_restore import Stopping
from tests.lab.sound_lab import look, make_sound_lab
from tests.tiny_labs import make_lab

STAGE = """
[stage.sft]
method = "sft"
data   = "sums"
steps  = 9
batch  = 4
micro_tokens = 64
checkpoint_every = 4
optimizer = { lr = 1e-2 }
adapt = { kind = "lora", rank = 4, alpha = 8, dropout = 0.2 }
"""
MEASURED = STAGE + 'validation = "sums.dev"\nvalidation_every = 2\n'


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    folder = tmp_path_factory.mktemp("lab")
    (made,) = start(make_lab(folder, until="[stage.sft]", tables=MEASURED), root=folder)
    return made


def metrics(run: RunDirectory) -> list[dict]:
    return [json.loads(line) for line in run.metrics.read_text().splitlines()]


def test_the_loss_stands_in_its_steps_on_the_page_and_where_a_run_is_watched(run) -> None:
    lines = metrics(run)
    seen = {line["step"]: line["validation_loss"] for line in lines if "validation_loss" in line}
    assert list(seen) == [2, 4, 6, 8, 9]
    (curve,) = [each for each in gather(run).curves("sft") if each.metric == "validation_loss"]
    assert curve.points == list(seen.items())
    page = write_report(run).read_text()
    assert "NLL per token, validation rows" in page
    (told,) = [r for r in progress(run, last=7).rows if r.metric == "validation_loss"]  # type: ignore[union-attr]
    assert told.after is not None and told.after.value == seen[6]


@pytest.mark.slow
def test_a_run_cut_off_between_measurements_ends_bit_identical(run, tmp_path: Path) -> None:
    expected = everything(run.path)
    file = run.root / "tiny.toml"
    with pytest.raises(KeyboardInterrupt):
        start(file, root=run.root, new=True, observer=Stopping(stage_name="sft", last=6))
    again = runs_of(run.root, "tiny")[-1]
    assert again.path != run.path and len(metrics(again)) == 6
    resume(again)
    assert everything(again.path) == expected


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["stage.sft.validation=sums"], "stage.sft.validation: these rows are trained on"),
        (["stage.sft.validation_every=2"], "stage.sft.validation_every: there is no validation"),
        (
            ['stage.rl.adapt={ kind = "lora", dropout = 0.1 }'],
            "stage.rl.adapt.dropout: completions are sampled without dropout",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(
    tmp_path: Path, overrides: list[str], message: str
) -> None:
    lab = make_sound_lab(tmp_path)
    with pytest.raises(InputError, match=message):
        look(lab, *overrides)
