"""Fixed workflows are arms like any other: their runs train nothing and have known scores."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from assay.errors import InputError
from tests.cli.conftest import assert_one_line, call
from tests.from_files import start

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


def test_a_price_takes_what_the_calls_cost_off_the_score(tmp_path):
    """One question of the script costs 1 for a token read and 2 for one written."""
    file = lab(tmp_path, "workflow:direct")
    text = file.read_text()
    file.write_text(text.replace('"problems.jsonl" }', '"problems.jsonl", price = 100.0 }'))
    assert call("run", file, "--lab", tmp_path).exit_code == 0
    (answers,) = (tmp_path / "runs").glob("sums/*/evaluations/*/base.parquet")
    for each in pq.read_table(answers).to_pylist():
        facts, parts = json.loads(each["facts"]), json.loads(each["parts"])
        assert facts["cost"] > 0
        assert each["score"] == pytest.approx(parts["correct"] - 100 * facts["cost"])
    text = text.replace('"problems.jsonl" }', '"problems.jsonl", price = 1.0, fallback = true }')
    file.write_text(text)
    refused = call("check", file, "--lab", tmp_path)
    assert_one_line(refused, "stands beside price")


def test_an_unknown_workflow_and_one_that_is_to_be_trained_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"unknown workflow 'workflow:progammer'.*programmer"):
        start(lab(tmp_path, "workflow:progammer"), root=tmp_path)
    file = lab(tmp_path)
    stage = '[data.d]\nsource = "asdiv:rl"\n[stage.s]\nmethod = "sft"\ndata = "d"\nsteps = 1\n'
    file.write_text(file.read_text() + stage)
    with pytest.raises(InputError, match="a fixed workflow gives no log-probabilities"):
        start(file, root=tmp_path)
