"""A lab of the smallest kind whose rows call tools over several turns, for Qwen3-style models."""

import json
from pathlib import Path

from assay.lab.check.all_checks import CheckResult
from tests.data.bfcl_handler import chat_template
from tests.data.chat import LINES
from tests.from_files import check_experiment
from tests.tiny_labs import make_lab

EXPERIMENT = """\
name  = "calls"
model = "path:model"
task  = "tools"

[data.calls]
source = "path:calls.jsonl"
format = "messages"
split  = { dev = 0.25, by = "conversation" }

[stage.sft]
method = "sft"
data   = "calls"
steps  = 1
batch  = 2
rendering = "qwen3_fc"

[evaluate.dev]
data   = "calls.dev"
reward = "strict_binary"
role   = "report"
rendering = "qwen3_fc"
checkpoints = ["sft.last"]
sampling = { max_tokens = 200 }
"""
TOOL = {
    "name": "get_weather",
    "description": "Weather of a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}
PREFILLED = "{{- '<|im_start|>assistant\\n<think>\\n' }}"


def make_tool_lab(folder: Path, **row: str) -> Path:
    """Fill `folder`; returns the experiment file. `row` is passed to `write_calls`."""
    write_calls(folder / "calls.jsonl", **row)  # type: ignore[arg-type]
    template = chat_template()
    return make_lab(
        folder, EXPERIMENT, file="calls.toml", rows={}, template=template, positions=4096
    )


def write_calls(
    file: Path, *, reasoning: str = "", beside: str = "", results: str = "tool", rows: int = 8
) -> None:
    """Rows of a question, a call, its result and an answer; then another call as the target."""
    lines = []
    for n in range(rows):
        said = {"role": "assistant", "content": beside, "tool_calls": [call(f"Zürich {n}")]}
        answer = {"role": "assistant", "content": "It is sunny."}
        for message in (said, answer) if reasoning else ():
            message["reasoning_content"] = reasoning
        result = {"role": "tool", "content": "sunny"}
        if results == "user":
            text = "<tool_response>\nsunny\n</tool_response>"
            result = {"role": "user", "content": text}
        asked = {"role": "user", "content": f"{LINES[0]} ({n})"}
        last = {**said, "content": ""}
        again = {"role": "user", "content": f"And again? ({n})"}
        messages = [asked, said, result, answer, again, last]
        lines.append({"id": f"row{n}", "messages": messages, "tools": [TOOL]})
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))


def call(city: str) -> dict:
    function = {"name": "get_weather", "arguments": {"city": city}}
    return {"type": "function", "function": function}


def look(lab: Path, *overrides: str) -> CheckResult:
    return check_experiment(lab / "calls.toml", overrides, root=lab)
