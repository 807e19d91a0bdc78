"""The ceiling: the arms of a task are ordinary runs that pair item by item, with known scores."""

import itertools
import json
import re
from pathlib import Path
from statistics import mean

import numpy as np
import pyarrow.parquet as pq
import pytest

from assay.errors import InputError
from assay.judge.scores import ItemScores
from assay.lab.run.ceiling import BY_LEVEL, BY_TYPE, CHOSEN, HINDSIGHT, choices_among
from assay.lab.run.runner import start
from assay.tasks.demos import oracle_search
from assay.tasks.demos.task import DemosTask
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


def test_types_have_their_best_workflow_and_equal_ones_are_measured_once(tmp_path, monkeypatch):
    """The programmer solves the sums, the direct answer the names; without code to write, the
    test-driven workflow is the direct one."""
    names = ("direct", "programmer", "test-driven-code")
    arms = {name: (f"workflow:{name}", {}) for name in names}
    monkeypatch.setattr(WorkflowsTask, "ceiling", arms)
    done = ceiling_of(lab(tmp_path), "--draws", 1)
    found, lines = done["result"], lines_in(done)
    assert scores_in(done) == pytest.approx(
        {"direct": 2 / 6, "programmer": 4 / 6, BY_TYPE: 1, HINDSIGHT: 1}
    )
    assert lines["programmer"]["by_type"] == {"math": 1, "qa": 0}
    assert lines["programmer"]["share"] == pytest.approx(0.5) and lines["direct"]["share"] == 0
    assert found["best_by_type"] == {"math": "programmer", "qa": "direct"}
    assert found["same"] == {"test-driven-code": "direct"} and len(found["lines"]) == 2
    assert any("within noise of direct on 6 items: programmer" in w for w in done["warnings"])


def test_the_best_of_a_problem_is_chosen_by_its_other_repeats():
    """Two arms of pure luck: in hindsight half, by the other repeat nothing."""
    lucky = {"a": ItemScores(("x",), np.array([[1, 0]])), "b": ItemScores(("x",), np.eye(2)[1:])}
    best, found = choices_among(lucky, {"x": ""})
    assert not best and found[HINDSIGHT].mean == 0.5 and found[CHOSEN].mean == 0


def test_levels_of_a_type_have_their_own_best_arm():
    """Cheap is right on easy sums alone, code on all of them at half the worth."""
    kinds = {"e": "sums/1", "h": "sums/2", "w": "words/1"}
    arms = {
        "cheap": ItemScores((*kinds,), np.array([[1.0], [0.0], [1.0]])),
        "code": ItemScores((*kinds,), np.array([[0.6], [0.6], [0.0]])),
    }
    best, found = choices_among(arms, kinds)
    assert best == {
        "sums": "code",
        "words": "cheap",
        "sums/1": "cheap",
        "sums/2": "code",
        "words/1": "cheap",
    }
    assert found[BY_TYPE].mean == pytest.approx(2.2 / 3)
    assert found[BY_LEVEL].mean == pytest.approx(2.6 / 3)


def test_without_levels_nothing_is_chosen_by_them():
    """The negative control: the levels of these types are one each."""
    arms = {"a": ItemScores(("x", "y"), np.eye(2)), "b": ItemScores(("x", "y"), 1 - np.eye(2))}
    assert BY_LEVEL not in choices_among(arms, {"x": "math", "y": "qa"})[1]
    assert BY_LEVEL not in choices_among(arms, {"x": "sums/1", "y": "words/1"})[1]


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


def lines_in(done) -> dict:
    return {line["name"]: line for line in done["result"]["arms"]}


def scores_in(done) -> dict[str, float]:
    return {name: line["score"] for name, line in lines_in(done).items()}


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


@pytest.fixture
def two_arms(monkeypatch) -> None:
    arms = {name: (f"selector:{name}", {}) for name in ("random", "oracle")}
    monkeypatch.setattr(DemosTask, "ceiling", arms)


def test_each_number_of_shots_has_its_floor_and_the_oracle_is_the_known_best(file, monkeypatch):
    monkeypatch.setattr(oracle_search, "BREADTH", None)
    done = ceiling_of(file, "--draws", 2, "--shots", 1, "--shots", 2)
    scores, lines = scores_in(done), done["result"]["arms"]
    assert 0 < best(1) < 1 and best(1) != best(2) and scores["zero-shot"] == 0
    assert [line["name"] for line in lines if not line["name"].startswith("best")] == [
        *("random-1", "zero-shot", "similarity-1", "oracle-1"),
        *("random-2", "similarity-2", "oracle-2"),
    ]
    for shots in (1, 2):
        low, top = scores[f"random-{shots}"], scores[f"oracle-{shots}"]
        assert top == pytest.approx(best(shots)) and low < top
        own = [line for line in lines if line["floor"] == f"random-{shots}"]
        assert max(line["score"] for line in own) == own[-1]["score"] == pytest.approx(top)
        for line in own:
            assert line["difference"] == pytest.approx(line["score"] - low)
            assert line["share"] == pytest.approx((line["score"] - low) / (top - low))
            if line["name"] != f"random-{shots}":
                assert line["interval"]["low"] < line["difference"] < line["interval"]["high"]


def test_the_arms_are_runs_that_are_not_measured_again(file, two_arms):
    words = ("ceiling", file, "--lab", file.parent, "--items", 12, "--draws", 1)
    shown = call(*words)
    assert shown.exit_code == 0, shown.output
    assert all(arm in shown.output for arm in ("oracle", "share of the gap", "in hindsight"))
    runs = sorted((file.parent / "runs").glob("*/*/status.json"))
    assert call(*words).exit_code == 0 and len(runs) == 2
    assert sorted((file.parent / "runs").glob("*/*/status.json")) == runs


def test_a_frozen_model_that_nothing_helps_leaves_nothing_to_win(file, two_arms):
    (file.parent / "frozen.jsonl").write_text('{"answer": "no"}\n')
    found = ceiling_of(file, "--draws", 1)
    assert set(scores_in(found).values()) == {0} and lines_in(found)["oracle"]["share"] is None
    assert any("little to win" in each for each in found["warnings"])
    assert any("too hard" in each for each in found["warnings"])


def test_a_gap_that_is_large_for_certain_is_not_warned_of(file, two_arms):
    """The first of a pool is the only one that helps, each item its own."""
    rules = []
    for row in ROWS:
        helpful, asked = row.extra["pool"][0], re.escape(row.messages[0].content)
        pattern = rf"user: asks {helpful}\.\nassistant: \w+\nuser: {asked}"
        rules.append({"prompt": pattern, "answer": "yes"})
    lines = "".join(json.dumps(rule) + "\n" for rule in [*rules, {"answer": "no"}])
    (file.parent / "frozen.jsonl").write_text(lines)
    found = ceiling_of(file, "--draws", 1, "--shots", 1)
    assert scores_in(found)["oracle-1"] == 1
    assert not [each for each in found["warnings"] if "noise" not in each]


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
    stage = (
        '[data.d]\nsource = "human-eval:test"\n[stage.s]\nmethod = "sft"\ndata = "d"\nsteps = 1\n'
    )
    file.write_text(file.read_text() + stage)
    with pytest.raises(InputError, match="a fixed workflow gives no log-probabilities"):
        start(file, root=tmp_path)


def test_a_workflow_whose_operators_are_not_offered_is_refused(tmp_path: Path) -> None:
    file = lab(tmp_path, "workflow:direct")
    offered = 'evaluate.test.options.operators=["Custom"]'
    with pytest.raises(InputError, match="calls AnswerGenerate, which 'm0' does not offer"):
        start(file, [offered], root=tmp_path)
