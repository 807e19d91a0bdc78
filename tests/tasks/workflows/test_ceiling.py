"""The ceiling of workflows: scores, costs and choices over a scripted executor, by the command."""

import json
import re
from pathlib import Path

import pytest

from assay.errors import InputError
from assay.lab.ceiling.ceiling import CeilingRequest, NoPools, measure_ceiling
from assay.lab.monitor.observer import Silent
from assay.lab.run.runner import start
from assay.pages.markdown import blocks_markdown
from assay.pages.words import words
from assay.runs.history import evaluation_records
from assay.runs.records import read_scores
from assay.tasks.workflows.ceiling import BY_TYPE, HINDSIGHT, WorkflowCeiling, blocks_of

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


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> WorkflowCeiling:
    folder = tmp_path_factory.mktemp("ceiling")
    request = CeilingRequest(None, None, 2, None)
    return measure_ceiling(lab(folder), (), folder, request, Silent())[0]


def test_each_type_has_its_best_workflow_and_the_choice_between_them_wins(
    found: WorkflowCeiling,
) -> None:
    scores = {(line.workflow, line.problem_type): line.score.value for line in found.lines}
    assert scores["programmer", "math"] == 1 and scores["programmer", "qa"] == 0
    assert scores["direct", "qa"] == 1 and scores["direct", "math"] == 0
    assert found.best == "programmer" and scores["programmer", "all"] == pytest.approx(4 / 6)
    assert found.best_by_type == {"math": "programmer", "qa": "direct"}
    assert scores[BY_TYPE, "all"] == scores[HINDSIGHT, "all"] == 1
    (best,) = [n for n in found.lines if n.problem_type == "all" and n.gap is None]
    assert best.workflow == "programmer"


def test_the_cost_of_a_workflow_is_that_of_its_words(found: WorkflowCeiling) -> None:
    (line,) = [n for n in found.lines if (n.workflow, n.problem_type) == ("direct", "qa")]
    assert line.questions == 1 and line.tokens is not None
    asked = "user: Name 0 Think step by step. Write <thought>your steps</thought> and "
    asked += "<answer>the answer</answer>."
    words = len(asked.split())
    assert line.tokens == pytest.approx(words + 1)


def test_the_table_names_what_flatters(found: WorkflowCeiling) -> None:
    page = blocks_markdown(blocks_of(found), words("en"))
    assert "| programmer | all | 66.7% |" in page and "they flatter" in page
    assert "best of all: programmer; by type: math: programmer, qa: direct" in page
    assert not re.search(r"\bnan\b", page)


def test_an_evaluation_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NoPools, match="no evaluation whose items are problems"):
        measure_ceiling(lab(tmp_path), (), tmp_path, CeilingRequest("tests"), Silent())


def test_an_unknown_workflow_and_one_that_is_to_be_trained_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"unknown workflow 'workflow:progammer'.*programmer"):
        start(lab(tmp_path, "workflow:progammer"), root=tmp_path)
    file = lab(tmp_path)
    stage = '[data.d]\nsource = "asdiv:rl"\n[stage.s]\nmethod = "sft"\ndata = "d"\nsteps = 1\n'
    file.write_text(file.read_text() + stage)
    with pytest.raises(InputError, match="a fixed workflow gives no log-probabilities"):
        start(file, root=tmp_path)


def test_a_fixed_workflow_is_recorded_like_any_other_arm(tmp_path: Path) -> None:
    (run,) = start(lab(tmp_path), root=tmp_path)
    (record,) = evaluation_records(run)
    scores = read_scores(run, record, "base")
    assert dict(zip(scores.item_ids, scores.scores[:, 0], strict=True)) == {
        **{f"m{n}": 1.0 for n in range(4)},
        **{f"q{n}": 0.0 for n in range(2)},
    }
    manifest = json.loads(run.manifest.read_text())
    assert manifest["base_weights"]["source"] == "workflow:programmer"
