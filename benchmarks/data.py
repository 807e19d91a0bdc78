"""What preparing the rows of a large data set costs, beside one pass of the template and tokenizer.

    python -m benchmarks.data --rows 600

Rows like those of report 000, made here: conversations of 32 messages with twelve tools and 6,600
to 8,900 tokens; 14,000 of them are 377 MB of JSONL. The baseline is what TRL's SFTTrainer maps over
such rows: `apply_chat_template` to text, then the tokenizer, once for each row; it is timed on the
first rows. Measured against it, in CPU-seconds of all processes and the most memory of the first:
`assay check` of an SFT stage, which reads, renders and checks all rows, and the same again with
another seed; what a check of eight rows costs is taken off. SmolLM2's tokenizer, its template by
`hermes`, or Qwen3's. Results lie in `benchmarks/results/data`.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from assay.data.renderings.rendering import Renderer, chat_template
from assay.data.renderings.template import qwen_template
from benchmarks.models import model_folder
from benchmarks.results import machine, save_result

TOOLS, MESSAGES = 12, 32
TEXT = """the report of station which river level falls below mark in winter and measured value
differs from forecast by more than three percent call again with date of last reading then compare
average over ten days before answer is given to operator who keeps record for office"""
WORDS = TEXT.split()
POOL = [*WORDS * 45, *map(str, random.Random(0).sample(range(99_999), 5 * len(WORDS)))]
PASSED = 200
"""Rows that the baseline is timed on."""
ONE_THREAD = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
SIZES: dict[str, Any] = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "max_position_embeddings": 32_768,
}
EXPERIMENT = """name = "talks"
model = "path:model"
task = "chat"

[data.talks]
source = "path:rows.jsonl"
format = "messages"

[stage.sft]
method = "sft"
data = "talks"
rendering = "{rendering}"
loss_on = "all"
epochs = 1
"""


def prose(source: random.Random, count: int) -> str:
    """So many words, a tenth of them numbers."""
    return " ".join(source.choices(POOL, k=count))


def tool(source: random.Random, number: int) -> dict[str, Any]:
    """A function with six described arguments."""
    names = [f"{source.choice(WORDS)}_{n}" for n in range(6)]
    properties = {n: {"type": "string", "description": prose(source, 14)} for n in names}
    schema = {"type": "object", "properties": properties, "required": names[:2]}
    name = f"look_up_{number}"
    function = {"name": name, "description": prose(source, 30), "parameters": schema}
    return {"type": "function", "function": function}


def conversation(number: int) -> dict[str, Any]:
    """One row: questions, calls, results and answers in turn."""
    source = random.Random(number)
    share = source.uniform(0.63, 0.98)
    tools = [tool(source, n) for n in range(TOOLS)]
    messages: list[dict[str, Any]] = []
    while len(messages) < MESSAGES:
        called = source.choice(tools)["function"]
        arguments = {n: prose(source, 9) for n in called["parameters"]["required"]}
        call = {"type": "function", "function": {"name": called["name"], "arguments": arguments}}
        messages += [
            {"role": "user", "content": prose(source, int(95 * share))},
            {"role": "assistant", "content": "", "tool_calls": [{"id": "c1", **call}]},
            {"role": "tool", "tool_call_id": "c1", "content": prose(source, int(150 * share))},
            {"role": "assistant", "content": prose(source, int(105 * share))},
        ]
    return {"messages": messages, "tools": tools}


def seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    """CPU-seconds of a call in this process, and what it returns."""
    begin = time.process_time()
    value = work()
    return time.process_time() - begin, value


def one_pass(tokenizer: Any, file: Path, template: str) -> list[int]:
    """The token counts of all rows, read and written as SFTTrainer does."""
    counts = []
    for line in file.open(encoding="utf-8"):
        row = json.loads(line)
        text = tokenizer.apply_chat_template(
            row["messages"], tools=row["tools"], chat_template=template, tokenize=False
        )
        counts.append(len(tokenizer(text, add_special_tokens=False)["input_ids"]))
    return counts


def lab(place: Path, tokenizer: Any, rendering: str) -> None:
    """A lab whose experiment trains a random model on the rows of `rows.jsonl`."""
    config = LlamaConfig(**SIZES, vocab_size=len(tokenizer), eos_token_id=2, pad_token_id=2)
    LlamaForCausalLM(config).save_pretrained(place / "model")
    tokenizer.save_pretrained(place / "model")
    text = EXPERIMENT.format(rendering=rendering)
    (place / "talks.toml").write_text(text, encoding="utf-8")


def command(place: Path, text: str, *settings: str) -> dict[str, float]:
    """CPU-seconds of `assay check` with its workers, and its most memory."""
    environment = {**os.environ, "ASSAY_CACHE": str(place / "cache"), **ONE_THREAD}
    words = [str(Path(sys.executable).with_name("assay")), "check", text, *settings]
    process = subprocess.Popen(words, cwd=place, env=environment)
    _, status, used = os.wait4(process.pid, 0)
    assert status == 0, status
    return {"cpu_s": used.ru_utime + used.ru_stime, "peak_mb": used.ru_maxrss / 1e3}


def measured(place: Path, tokenizer: Any, rendering: str, rows: int) -> dict[str, Any]:
    """The commands on all rows, what they cost without rows, and a pass over some."""
    lab(place, tokenizer, rendering)
    few = place / "few.jsonl"
    with (place / "rows.jsonl").open(encoding="utf-8") as stream:
        few.write_text("".join(islice(stream, min(rows, PASSED))), encoding="utf-8")
    template = chat_template(Renderer(tokenizer, rendering))
    base, counts = seconds(lambda: one_pass(tokenizer, few, template))
    short = place / "short.jsonl"
    short.write_text("".join(few.read_text(encoding="utf-8").splitlines(True)[:8]))
    command(place, "talks.toml", "--set", 'data.talks.source="path:short.jsonl"')  # times the model
    idle = command(place, "talks.toml", "--set", 'data.talks.source="path:short.jsonl"')
    first = command(place, "talks.toml")
    again = command(place, "talks.toml", "--set", "seeds=[7]")
    each = base / len(counts)
    return {
        "tokens": [min(counts), max(counts)],
        "pass_ms": each * 1e3,
        "without_rows": idle,
        "first": first,
        "again": again,
        "passes": (first["cpu_s"] - idle["cpu_s"]) / rows / each,
        "again_s": again["cpu_s"] - idle["cpu_s"],
        "memory_mb": max(first["peak_mb"], again["peak_mb"]) - idle["peak_mb"],
    }


def main() -> None:
    """Measure, print and save."""
    parser = ArgumentParser(prog="python -m benchmarks.data")
    parser.add_argument("--rows", type=int, default=14_000)
    parser.add_argument("--only", choices=("hermes", "qwen3"))
    arguments = parser.parse_args()
    rows = arguments.rows
    own, thinking = (AutoTokenizer.from_pretrained(model_folder("smollm2")) for _ in range(2))
    thinking.chat_template = qwen_template(handler=False)
    kinds = {"hermes": (own, "hermes"), "qwen3": (thinking, "template")}
    for name in [arguments.only] if arguments.only else kinds:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "rows.jsonl"
            with file.open("w", encoding="utf-8") as stream:
                stream.writelines(json.dumps(conversation(n)) + "\n" for n in range(rows))
            result = {"rows": rows, "megabytes": file.stat().st_size / 1e6, "template": name}
            result |= measured(Path(folder), *kinds[name], rows)
            result["machine"] = machine()
            print(json.dumps(result, indent=1))
            save_result("data", f"{name}-{rows}-rows", result)


if __name__ == "__main__":
    main()
