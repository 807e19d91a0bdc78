"""A whole workflows experiment with an executor that is scripted or behind a local endpoint."""

import json
import re
from collections.abc import Callable
from pathlib import Path

from tests.rollout.engines.endpoint.fault_server import FaultServer

PROMPT, COMPLETION = 10.0, 10000.0
"""Per million tokens."""
EXPERIMENT = """
name = "names"
task = "workflows"
seeds = [1]

[model]
policy = "workflow:direct"

[model.executor]
source = "scripted:executor.jsonl"
with_endpoint = "openai:m"
rendering = "template"
concurrency = 16
timeout = 0.4
deadline = 5.0
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
    for name, lines in (("problems", rows), ("executor", [{"prompt": "", "answer": SAID}])):
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / f"{name}.jsonl").write_text(text)
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
