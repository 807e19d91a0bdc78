"""A workflows experiment over a failing endpoint: nothing is lost, and no failure is a score."""

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from assay.experiment.price_table import NANO
from assay.rollout.engines.endpoint import client
from assay.rollout.engines.endpoint.client import URL
from assay.runs.cost_ledger import read_calls
from assay.runs.history import evaluation_records
from assay.runs.records import read_columns
from assay.runs.run_directory import RunDirectory, all_runs, read_status
from tests.cli.conftest import assert_one_line, call
from tests.rollout.engines.endpoint.fault_server import FaultServer, fault_server

PROMPT, COMPLETION = 10.0, 10000.0
"""Per million tokens."""
EXPERIMENT = """
name = "names"
task = "workflows"
seeds = [1]

[model]
policy = "workflow:direct"

[model.executor]
source = "openai:m"
rendering = "template"
concurrency = 16
timeout = 1.0
deadline = 20.0
sampling = { temperature = 0.7, max_tokens = 8 }
price = { prompt = 10.0, completion = 10000.0 }
budget = { run = BUDGET }

[evaluate.test]
benchmark = "workflows/problems"
options = { path = "problems.jsonl" }
role = "report"
checkpoints = ["base"]
sampling = { max_tokens = 32 }
"""
SAID = "<thought>t</thought><answer>Ada</answer>"


def make_names_lab(folder: Path, problems: int = 4, budget: float = 100.0) -> Path:
    """Questions 'Name 0', 'Name 1', ..., whose answer is Ada; returns the experiment file."""
    rows = [
        {"id": f"q{n}", "problem": f"Name {n}.", "problem_type": "qa", "ground_truth": "Ada"}
        for n in range(problems)
    ]
    (folder / "problems.jsonl").write_text("".join(json.dumps(line) + "\n" for line in rows))
    file = folder / "names.toml"
    file.write_text(EXPERIMENT.replace("BUDGET", str(budget)))
    return file


def number_of(text: str) -> int:
    """Which of the questions a prompt asks."""
    found = re.search(r"Name (\d+)\.", text)
    assert found is not None, text
    return int(found[1])


def naming_server(faults: Callable[[int, int], str]) -> FaultServer:
    """A server that knows the answer; its faults are by question and earlier attempts at it."""
    return FaultServer(
        lambda number: "answer",
        by_text=lambda text, before: faults(number_of(text), before),
        says=lambda text: SAID,
    )


FAULTS = ("429", "later", "500", "truncated", "cut", "silent", "slow", "endless")
ATTEMPTS = 2
KEY = "sk-0123456789abcdef-secret"
RESERVED = 0.09
"""More than one call can cost: 8 tokens written, and a prompt whose every byte is one."""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "FIRST_PAUSE", 0.001)
    monkeypatch.setattr(client, "ATTEMPTS", ATTEMPTS)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.delenv(URL, raising=False)


def fault_of(number: int, before: int) -> str:
    """Two questions for each fault: the first meets it once, the second every time."""
    fault, always = FAULTS[number // 2 % len(FAULTS)], number % 2
    return fault if number < 2 * len(FAULTS) and (always or not before) else "answer"


def scored(run: RunDirectory) -> dict[str, float | None]:
    (record,) = evaluation_records(run)
    found = read_columns(record.file(run.evaluations, "base"), ["item_id", "score"])
    return dict(zip(found["item_id"], found["score"], strict=True))


def charged_by(server: FaultServer) -> float:
    wrote = server.charged * server.completion_tokens
    return (server.prompt_tokens * PROMPT + wrote * COMPLETION) / 1e6


def test_each_fault_once_is_overcome_and_always_is_an_abstention_that_is_counted_and_shown(
    tmp_path, monkeypatch
):
    problems = 2 * len(FAULTS) + 4
    file = make_names_lab(tmp_path, problems)
    with fault_server(naming_server(fault_of)) as server:
        monkeypatch.setenv(URL, server.url)
        done = call("run", file, "--lab", tmp_path)
    assert done.exit_code == 0, done.stderr
    (run,) = all_runs(tmp_path)
    scores = scored(run)
    abstained = {name for name, score in scores.items() if score is None}
    assert abstained == {f"q{n}" for n in range(1, 2 * len(FAULTS), 2)}
    assert all(score == 1 for score in scores.values() if score is not None)
    assert len(scores) == problems
    assert f"{len(FAULTS)} unscored" in done.stdout and "executor gave no answer" in done.stderr

    calls = read_calls(run.path)
    assert Counter(each.status for each in calls) == {"answered": 12, "failed": len(FAULTS)}
    assert sum(each.attempts for each in calls) == sum(server.done.values())
    assert {each.why != "" for each in calls if each.status == "failed"} == {True}
    assert charged_by(server) <= sum(each.most for each in calls) / NANO
    costs = json.loads(call("costs", "names", "--lab", tmp_path, "--json").stdout)["result"]
    assert (costs["total"]["calls"], costs["total"]["failed"]) == (problems, len(FAULTS))
    assert set(server.done) == {"answer", *FAULTS}


def test_the_key_is_sent_and_lies_in_no_file_of_the_lab(tmp_path, monkeypatch):
    file = make_names_lab(tmp_path, 2)
    with fault_server(naming_server(fault_of)) as server:
        monkeypatch.setenv(URL, server.url)
        done = call("run", file, "--lab", tmp_path)
    assert done.exit_code == 0 and any(KEY in head for head in server.heads)
    assert KEY not in done.stdout + done.stderr
    files = [each for each in tmp_path.rglob("*") if each.is_file()]
    assert len(files) > 5 and not [each for each in files if KEY.encode() in each.read_bytes()]


def test_a_budget_that_faults_use_up_stops_the_run_with_all_that_is_recorded_kept(
    tmp_path, monkeypatch
):
    budget = 6 * RESERVED
    file = make_names_lab(tmp_path, 40, budget)
    lossy = naming_server(lambda n, before: "truncated" if n % 3 == 0 else "answer")
    with fault_server(lossy) as server:
        monkeypatch.setenv(URL, server.url)
        stopped = call("run", file, "--lab", tmp_path)
        assert_one_line(stopped, "model.executor.budget.run", code=1)
        (run,) = all_runs(tmp_path)
        calls = read_calls(run.path)
        assert read_status(run.path).status == "failed"
        most = sum(each.most for each in calls) / NANO
        assert 0 < charged_by(server) <= most <= budget
        assert {each.status for each in calls} <= {"answered", "failed"} and len(calls) > 3
        again = call("resume", "names", "--lab", tmp_path)
    assert_one_line(again, "model.executor.budget.run", code=1)
    after = read_calls(run.path)
    assert after[: len(calls)] == calls and charged_by(server) <= budget
    assert sum(each.most for each in after) / NANO <= budget


def test_an_endpoint_that_is_down_is_one_line_before_any_run_is_made(tmp_path, monkeypatch):
    monkeypatch.setenv(URL, "http://127.0.0.1:9/v1")
    file = make_names_lab(tmp_path)
    down = call("run", file, "--lab", tmp_path)
    assert_one_line(down, "model.executor.endpoint", "does not answer", URL)
    assert not all_runs(tmp_path)
    assert call("check", file, "--lab", tmp_path).exit_code == 2
