"""A real sweep of demonstration selectors, as in report 002: two KL coefficients, two epochs,
numbers of queries and of shots, against random, similarity, RCE alone and zero-shot.
"""

import re
from pathlib import Path

import pytest

from assay.lab.monitor.observer import Silent
from assay.lab.run.runner import launch_or_resume
from assay.lab.sweep.matrix.model import Matrix
from assay.lab.sweep.matrix.request import Request, make_matrix
from assay.lab.sweep.missing_runs import missing_work
from assay.lab.sweep.read_sweep import read_sweep
from assay.pages.words import in_language
from tests.cli.conftest import call
from tests.lab.selector_task import HEAD, UNTRAINED, make_colours_lab, use_words

pytestmark = pytest.mark.slow  # Five runs.
TRAINED = """\
[stage.weigh]
method = "rce"
data   = "train"
candidates = "stored"
epochs = 1
prompts = 8
micro_tokens = 20
optimizer = { lr = 1e-2 }

[stage.rl]
method = "grpo"
data   = "train"
candidates = "stored"
epochs = 2
prompts = 8
kl     = { coef = 0.12 }
checkpoint_every = { epochs = 1 }
validation = "train.dev"
validation_every = { epochs = 1 }
micro_tokens = 20
optimizer = { lr = 1e-2 }

[evaluate.test]
benchmark = "colours/test"
role   = "report"
take   = { rows = 20, how = "first" }
checkpoints = ["base", "weigh.last", "rl.all"]
"""
ROWS, SHOTS = "evaluate.test.take.rows", "evaluate.test.options.shots"
SWEEP = f"""\
name  = "kl"
about = "Is a KL coefficient of 0.12 better than 0.15?"
base  = "colours.toml"
on    = ["test"]
rows  = "{ROWS}"
columns = "{SHOTS}"
baseline.where = {{ arm = "kl-15" }}

[controls]
random     = {{ where = {{ arm = "random" }} }}
similarity = {{ where = {{ arm = "similarity" }} }}
zero-shot  = {{ where = {{ arm = "zero-shot" }} }}
rce        = {{ checkpoint = "weigh.last" }}

[axes]
{ROWS} = [5, 10, 20]
{SHOTS} = [1, 2]
epoch = [1, 2]

[arms.kl-12]
set.stage.rl.kl.coef = 0.12

[arms.kl-15]
set.stage.rl.kl.coef = 0.15

[arms.random]
base = "untrained.toml"
checkpoint = "base"
set.model = "selector:random"

[arms.similarity]
base = "untrained.toml"
checkpoint = "base"
set.model = "selector:similarity"

[arms.zero-shot]
base = "untrained.toml"
checkpoint = "base"
set.model = "selector:random"
set.evaluate.test.options.shots = 0
"""


@pytest.fixture(autouse=True)
def words(monkeypatch, tmp_path) -> None:
    use_words(monkeypatch, tmp_path)


def fill(root: Path) -> list[str]:
    """`assay fill` in this process; what became of each run."""
    work = missing_work(root, read_sweep(root / "sweep.toml"))
    # The rewards of this task ask no model, and are 0 where nothing is shown.
    reasons = {"kl.zero-shot": "nothing to pick has no right picks"}
    return [
        done.did
        for job in work.jobs
        for done in launch_or_resume(
            job.plan.base,
            job.plan.overrides,
            root=root,
            observer=Silent(),
            despite=reasons.get(job.plan.name),
        )
    ]


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """The lab with all runs of the sweep."""
    root = tmp_path_factory.mktemp("kl")
    with pytest.MonkeyPatch.context() as patch:
        use_words(patch, root)
        make_colours_lab(root, HEAD, TRAINED)
        take = 'take   = { rows = 20, how = "first" }\n'
        untrained = HEAD.replace("selector:pointer", "selector:random") + UNTRAINED + take
        (root / "untrained.toml").write_text(untrained)
        (root / "sweep.toml").write_text(SWEEP)
        assert fill(root) == ["started"] * 5
    return root


@pytest.fixture(scope="module")
def matrix(made) -> Matrix:
    return make_matrix(made, [str(made / "sweep.toml")], Request())


def test_every_cell_and_every_block_has_its_figure(matrix):
    assert {cell.state for cell in matrix.cells.values()} == {"measured"}
    assert len(matrix.cells) == 6 * (2 * 2 + 3)
    assert not any(cell.run for cell in matrix.cells.values())
    assert [note.code for note in matrix.notes] == ["made_despite"]
    assert len({origin.file for c in matrix.cells.values() for origin in c.origins}) == 13
    found = {(b.control, dict(b.where)["arm"]): b for b in matrix.blocks}
    others = [
        (c, a) for c in ("random", "similarity", "zero-shot", "rce") for a in ("kl-12", "kl-15")
    ]
    assert found.keys() == {("baseline", "kl-12"), *others}
    for block in found.values():
        parts = (block.overall, *block.rows, *block.columns)
        assert all(mean is not None for part in parts for mean in part.means)
        assert all(part.trend is not None for part in parts)
        assert [tally.compared for tally in block.tallies] == [6, 6]


def test_the_training_tables_are_whole_and_the_loss_is_the_sum_of_its_parts(matrix):
    stages = {(each.run.partition("/")[0], each.stage): each for each in matrix.trainings}
    assert stages.keys() == {(f"kl.kl-{n}", s) for n in (12, 15) for s in ("weigh", "rl")}
    for coefficient in (0.12, 0.15):
        found = stages[f"kl.kl-{coefficient * 100:.0f}", "rl"]
        assert [(epoch.number, epoch.steps) for epoch in found.epochs] == [(1, 3), (2, 3)]
        for epoch in found.epochs:
            assert epoch.values["kl_coef"] == pytest.approx(coefficient)
            whole = {"loss", "validation_loss", "policy_loss", "kl", "reward_mean"}
            assert whole | {"advantage_std", "advantage_max"} <= epoch.values.keys()
    (data,) = matrix.data_files
    assert data.groups["queries"] == 24 and data.groups["candidates"] == 96


def test_the_page_has_no_open_cell(made):
    result = call("matrix", made / "sweep.toml", "--lang", "zh", "--lab", made)
    assert result.exit_code == 0, result.output
    page = in_language(made / "matrices" / "kl" / "matrix.md", "zh").read_text()
    cells = [text.strip() for line in page.splitlines() for text in line.split("|")]
    assert not [text for text in cells if text in ("?", "–", "") and text == "?"]
    assert not re.search(r"未运行|未测量|未比较", page)
