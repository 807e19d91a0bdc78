"""The ladder: its rows think before they call, and each file is sound on a tiny model."""

from pathlib import Path

import pytest

from assay.data.formats.formats import read_rows
from assay.lab.sweep.read_sweep import plan, read_sweep
from tests.experiments.tiny import TOOLS, make_model
from tests.from_files import check_experiment

LADDER = read_sweep(TOOLS / "ladder.toml")
SMALL = (
    "data.calls.take.rows=8",
    "data.warm_calls.take.rows=8",
    "data.talks.source=simulated:4",
    "data.warm_talks.source=simulated:4",
    "data.held_out.source=simulated_held_out:2",
    # The tiny tokenizer writes English in twice as many tokens.
    *(f"data.{name}.max_prompt_tokens=10000" for name in ("talks", "warm_talks", "held_out")),
)


def test_the_rows_with_thoughts_think_before_one_call_of_a_tool_they_have():
    rows = read_rows(TOOLS / "ladder" / "thoughts.jsonl", "messages")
    for row in rows:
        target = row.messages[-1]
        (call,) = target.tool_calls
        described = {tool["function"]["name"] for tool in row.tools}
        assert target.reasoning and call.name in described and len(described) == 2


@pytest.mark.slow
@pytest.mark.parametrize("arm", ["lora_grpo", "baseline", "full_sft_last", "egpo_think"])
def test_an_arm_is_sound_in_a_tiny_lab(arm: str, tmp_path: Path):
    model = make_model(tmp_path)
    (run,) = [r for r in plan(LADDER) if r.name == f"ladder.{arm}"]
    known = [s for s in SMALL if s.split(".")[1] in run.experiment.data]
    root = TOOLS.parents[1]
    settings = [*run.overrides, *known, f"model=path:{model}"]
    settings += ["evaluate.calls.take.rows=2", "evaluate.sampled.take.rows=2"]
    report = check_experiment(run.base, settings, root=root)
    assert [f for f in report.findings if f.severity == "error"] == []
