"""What report 004 asks to be protected, on a selector's run: its gate, checkpoints and data."""

import hashlib
from pathlib import Path

import pytest

from assay.runs.run_directory import RunDirectory
from assay.runs.run_files import read_selection
from tests.cli.conftest import call
from tests.from_files import run_from
from tests.lab.selector_task import HEAD, make_colours_lab

pytestmark = pytest.mark.usefixtures("colour_words")
STAGES = """\
[stage.weigh]
method = "rce"
data   = "train"
candidates = "stored"
steps = 24
prompts = 16
checkpoint_every = 12
tau = 0.2
optimizer = { lr = 1e-2 }

[stage.still]
method = "grpo"
data   = "train"
steps  = 4
prompts = 4
group  = 4
reward = "share"
kl     = { coef = 0.15 }
checkpoint_every = 2
optimizer = { lr = 1e-30 }

[evaluate.dev]
data   = "train.dev"
reward = "share"
role   = "select"
checkpoints = ["weigh.all", "still.all"]

[evaluate.test]
benchmark = "colours/test"
role   = "report"
checkpoints = ["base", "weigh.last", "still.last"]
"""
"""RCE on stored selections, then GRPO that moves nothing."""
START = "weigh.step-000024"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, colour_words: None) -> RunDirectory:
    """Of a lab with 160 queries."""
    file = make_colours_lab(tmp_path_factory.mktemp("colours"), HEAD, STAGES)
    task = file.with_name("colours_task.py")
    task.write_text(task.read_text().replace("range(32))", "range(160))"))
    return run_from(file)


def test_the_gate_promotes_a_selector_that_is_shown_better(run):
    chosen = read_selection(run.path, "weigh")
    assert chosen is not None and chosen.promoted and chosen.start == "base"
    assert all(look.verdict == "better" for look in chosen.evidence)


def test_the_gate_keeps_the_start_of_a_stage_whose_checkpoints_are_the_same(run):
    chosen = read_selection(run.path, "still")
    assert chosen is not None and not chosen.promoted and chosen.checkpoint == START
    assert [look.difference for look in chosen.evidence] == [0.0, 0.0]


SAME = "pick the same demonstrations, in the same order, for 20 of 20 queries"


def test_identical_selections_are_said_to_be_unable_to_differ(run):
    """Within a run, and between checkpoints that a comparison names; others are not said to be."""
    compared = call("compare", f"{run}@weigh.last", f"{run}@still.last", "--lab", run.root)
    said = " ".join(compared.stdout.split())
    assert f"{SAME}: their scores cannot differ" in said
    reported = " ".join(call("report", run, "--full", "--lab", run.root).stdout.split())
    assert f"weigh · step 24 and still · step 4 {SAME}" in reported
    assert f"base and still · step 4 {SAME}" not in reported
    assert SAME in (run.path / "report.html").read_text()


def checkpoints(lab: Path) -> dict[str, str]:
    files = [p for p in lab.glob("runs/*/*/checkpoints/**/*") if p.is_file()]
    return {str(p.relative_to(lab)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


@pytest.mark.slow
def test_no_command_overwrites_a_checkpoint(run):
    lab, file = run.root, run.root / "colours.toml"
    before = checkpoints(lab)
    again = call("run", file, "--lab", lab)
    assert again.exit_code == 2 and "exists" in again.stderr
    for words in (
        ("run", file, "--new", "--set", "stage.weigh.tau=0.3"),
        ("run", file, "--or-resume", "--set", "stage.weigh.tau=0.3"),
        ("eval", f"{run}@weigh.step-12", "--benchmark", "colours/test"),
    ):
        result = call(*words, "--lab", lab)
        assert result.exit_code == 0, (words, result.output)
    after = checkpoints(lab)
    assert len(before) > 10 and {name: after.get(name) for name in before} == before
    assert len(after) == 2 * len(before), "the new run has checkpoints of its own"
