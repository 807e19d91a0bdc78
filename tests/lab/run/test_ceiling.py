"""The ceiling: the arms of a task are ordinary runs that pair item by item, with known scores."""

import itertools
import json
from pathlib import Path
from statistics import mean

import pytest

from assay.errors import InputError
from assay.lab.run.runner import start
from assay.tasks.demos import oracle_search
from assay.tasks.workflows.task import WorkflowsTask
from tests.cli.conftest import answer, assert_one_line, call
from tests.tasks.demos.helped_lab import OPTIONS, helps, items, make_helped_lab
from tests.tasks.demos.made_sets import known_features

__all__ = ["known_features"]
EXPERIMENT = """
name = "sums"
task = "workflows"
seeds = [1]

[model]
policy = "MODEL"

[model.executor]
source = "scripted:executor.jsonl"
price = { prompt = 1.0, completion = 2.0 }

[evaluate.test]
benchmark = "workflows/problems"
options = { path = "problems.jsonl" }
role = "report"
checkpoints = ["base"]
sampling = { max_tokens = 32 }
"""
PROBLEMS = [
    {"id": f"m{n}", "problem": f"Sum {n}+1", "problem_type": "math", "ground_truth": f"{n + 1}"}
    for n in range(4)
] + [
    {"id": f"q{n}", "problem": f"Name {n}", "problem_type": "qa", "ground_truth": "Ada"}
    for n in range(2)
]
"""Code adds, words name: each type has another best workflow."""
SCRIPT = [
    *(
        {"prompt": rf"Sum {n}\+1[^$]*solve", "answer": f"```python\ndef solve(): return {n}+1\n```"}
        for n in range(4)
    ),
    {"prompt": "solve", "answer": "```python\ndef solve(): return 'Bob'\n```"},
    {"prompt": "Name", "answer": "<thought>t</thought><answer>Ada</answer>"},
    {"prompt": "", "answer": "<thought>t</thought><answer>0</answer>"},
]


def lab(folder: Path, model: str = "workflow:programmer") -> Path:
    for name, lines in (("problems", PROBLEMS), ("executor", SCRIPT)):
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / f"{name}.jsonl").write_text(text)
    file = folder / "sums.toml"
    file.write_text(EXPERIMENT.replace("MODEL", model))
    return file


def test_fixed_workflows_are_compared_and_the_best_of_each_item_is_told(tmp_path, monkeypatch):
    """The programmer solves the sums, the direct answer the names."""
    two = {name: (f"workflow:{name}", {}) for name in ("direct", "programmer")}
    monkeypatch.setattr(WorkflowsTask, "ceiling", two)
    result = ceiling_of(lab(tmp_path), "--draws", 1)["result"]
    assert result["scores"] == pytest.approx({"direct": 2 / 6, "programmer": 4 / 6})
    assert result["hindsight"] == 1


def ceiling_of(file: Path, *words):
    done = call("ceiling", file, "--lab", file.parent, "--json", *words)
    assert done.exit_code == 0, done.output
    return answer(done)


ROWS = items(24, OPTIONS)


def best(shots: int, rows=ROWS) -> float:
    """By trying everything, without a search."""
    ordered = (itertools.permutations(row.extra["pool"], shots) for row in rows)
    return mean(any(helps(r, p) for p in every) for r, every in zip(rows, ordered, strict=True))


@pytest.fixture
def file(tmp_path: Path, known_features) -> Path:
    return make_helped_lab(tmp_path)


def test_the_oracle_is_the_known_best_and_no_arm_is_above_it(file, monkeypatch):
    one = "evaluate.test.options.shots=1"
    single = ceiling_of(file, "--set", one, "--draws", 2)["result"]
    assert 0 < best(1) < 1 and single["scores"]["oracle"] == pytest.approx(best(1))
    assert single["hindsight"] == single["scores"]["oracle"] == max(single["scores"].values())
    monkeypatch.setattr(oracle_search, "BREADTH", None)
    pairs = ceiling_of(file, "--items", 12, "--draws", 1)["result"]["scores"]
    assert pairs["oracle"] == pytest.approx(best(2, ROWS[:12]))
    assert pairs["zero-shot"] == 0


def test_the_arms_are_runs_that_are_not_measured_again(file):
    words = ("ceiling", file, "--lab", file.parent, "--items", 12, "--draws", 1)
    shown = call(*words)
    assert shown.exit_code == 0, shown.output
    assert all(arm in shown.output for arm in ("oracle", "similarity", "in hindsight"))
    runs = sorted((file.parent / "runs").glob("*/*/status.json"))
    assert call(*words).exit_code == 0 and len(runs) == 4
    assert sorted((file.parent / "runs").glob("*/*/status.json")) == runs


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--items", 25), "25"),
        (("--on", "tset"), "test"),
        (("--set", "model.frozen=1"), "model.frozen"),
    ],
)
def test_what_cannot_be_measured_is_one_line(file, words, said):
    assert_one_line(call("ceiling", file, "--lab", file.parent, *words), said)


def test_an_unknown_workflow_and_one_that_is_to_be_trained_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"unknown workflow 'workflow:progammer'.*programmer"):
        start(lab(tmp_path, "workflow:progammer"), root=tmp_path)
    file = lab(tmp_path)
    stage = '[data.d]\nsource = "asdiv:rl"\n[stage.s]\nmethod = "sft"\ndata = "d"\nsteps = 1\n'
    file.write_text(file.read_text() + stage)
    with pytest.raises(InputError, match="a fixed workflow gives no log-probabilities"):
        start(file, root=tmp_path)
