"""What preparing the rows of a large data set costs, beside one pass of the template and tokenizer.

    python -m benchmarks.data --rows 600

Rows like those of report 000, made here: conversations of 32 messages with twelve tools and 6,600
to 8,900 tokens; 14,000 of them are 411 MB of JSONL. The baseline is what TRL's SFTTrainer maps over
such rows: `apply_chat_template` to text, then the tokenizer, once for each row; it is timed on the
first rows, by a process on each core, before the commands and behind them. Measured against it, in
CPU-seconds of all processes and the most memory of the first: `assay check` of an SFT stage, which
reads, renders and checks all rows, and the same again with another seed; what a check of eight rows
costs is taken off. Python keeps its bytecode between commands, as it does for users. With `--trl`,
TRL prepares the rows, too (`benchmarks.trl_rows`). SmolLM2's tokenizer, its template by `hermes` or
Qwen3's, which rewrites earlier answers: trained on the last one, or on each in a turn of its own.
Results lie in `benchmarks/results/data`.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from assay.data.renderings.checkpoint_template import chat_template
from assay.data.renderings.rendering import Renderer
from assay.data.renderings.template import qwen_template
from benchmarks.environments import environment
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
loss_on = "{loss_on}"
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


def one_pass(tokenizer: Any, file: Path, template: str) -> tuple[float, list[int]]:
    """CPU-seconds of reading and writing all rows as SFTTrainer does, and their token counts."""
    begin, counts = time.process_time(), []
    for line in file.open(encoding="utf-8"):
        row = json.loads(line)
        text = tokenizer.apply_chat_template(
            row["messages"], tools=row["tools"], chat_template=template, tokenize=False
        )
        counts.append(len(tokenizer(text, add_special_tokens=False)["input_ids"]))
    return time.process_time() - begin, counts


def passes(*about: Any) -> tuple[float, list[int]]:
    """`one_pass` of a process on each core: the mean of their CPU-seconds for a row."""
    cores = len(os.sched_getaffinity(0))
    with ProcessPoolExecutor(cores, get_context("fork")) as pool:
        made = [each.result() for each in [pool.submit(one_pass, *about) for _ in range(cores)]]
    return sum(cpu for cpu, _ in made) / cores / len(made[0][1]), made[0][1]


def lab(place: Path, tokenizer: Any, rendering: str, loss_on: str) -> None:
    """A lab whose experiment trains a random model on the rows of `rows.jsonl`."""
    config = LlamaConfig(**SIZES, vocab_size=len(tokenizer), eos_token_id=2, pad_token_id=2)
    LlamaForCausalLM(config).save_pretrained(place / "model")
    tokenizer.save_pretrained(place / "model")
    text = EXPERIMENT.format(rendering=rendering, loss_on=loss_on)
    (place / "talks.toml").write_text(text, encoding="utf-8")


def command(place: Path, text: str, *settings: str) -> dict[str, float]:
    """CPU-seconds of `assay check` with its workers, seconds, and its most memory."""
    words = [str(Path(sys.executable).with_name("assay")), "check", text, *settings]
    begin = time.monotonic()
    process = subprocess.Popen(words, cwd=place, env=variables(place))
    _, status, used = os.wait4(process.pid, 0)
    assert status == 0, status
    cpu, peak = used.ru_utime + used.ru_stime, used.ru_maxrss / 1e3
    return {"cpu_s": cpu, "s": time.monotonic() - begin, "peak_mb": peak}


def variables(place: Path) -> dict[str, str]:
    """Those of a command, which keeps its cache and bytecode in `place`."""
    own = {"ASSAY_CACHE": place / "cache", "PYTHONPYCACHEPREFIX": place / "bytecode"}
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, **{k: str(v) for k, v in own.items()}, **ONE_THREAD}


def trl(place: Path, template: str, processes: int) -> dict[str, Any]:
    """What TRL's preparation of the same rows costs with so many processes."""
    (place / "template.jinja").write_text(template, encoding="utf-8")
    files = (str(place / name) for name in ("model", "rows.jsonl", "template.jinja"))
    words = [environment("trl-1.16"), "-m", "benchmarks.trl_rows", *files, str(processes)]
    return json.loads(subprocess.check_output(words, env=variables(place)).splitlines()[-1])


def measured(
    place: Path, tokenizer: Any, rendering: str, loss_on: str, rows: int, with_trl: bool
) -> dict[str, Any]:
    """The commands on all rows, what they cost without rows, and a pass over some."""
    lab(place, tokenizer, rendering, loss_on)
    few = place / "few.jsonl"
    with (place / "rows.jsonl").open(encoding="utf-8") as stream:
        few.write_text("".join(islice(stream, min(rows, PASSED))), encoding="utf-8")
    template = chat_template(Renderer(tokenizer, rendering))
    before, counts = passes(tokenizer, few, template)
    short = place / "short.jsonl"
    short.write_text("".join(few.read_text(encoding="utf-8").splitlines(True)[:8]))
    # The first of these times the model and writes bytecode.
    command(place, "talks.toml", "--set", 'data.talks.source="path:short.jsonl"')
    idle = command(place, "talks.toml", "--set", 'data.talks.source="path:short.jsonl"')
    first = command(place, "talks.toml")
    theirs = {f"trl_{n}": trl(place, template, n) for n in ((1, 2) if with_trl else ())}
    again = command(place, "talks.toml", "--set", "seeds=[7]")
    behind, _ = passes(tokenizer, few, template)
    each = (before + behind) / 2
    return {
        "tokens": [min(counts), max(counts)],
        "pass_ms": [before * 1e3, behind * 1e3],
        "without_rows": idle,
        "first": first,
        "again": again,
        **theirs,
        "passes": (first["cpu_s"] - idle["cpu_s"]) / rows / each,
        "again_s": again["cpu_s"] - idle["cpu_s"],
        "memory_mb": max(first["peak_mb"], again["peak_mb"]) - idle["peak_mb"],
    }


def main() -> None:
    """Measure, print and save."""
    parser = ArgumentParser(prog="python -m benchmarks.data")
    parser.add_argument("--rows", type=int, default=14_000)
    parser.add_argument("--only", choices=("hermes", "qwen3", "qwen3-each"))
    parser.add_argument("--trl", action="store_true", help="TRL prepares the rows, too.")
    arguments = parser.parse_args()
    rows = arguments.rows
    own, thinking = (AutoTokenizer.from_pretrained(model_folder("smollm2")) for _ in range(2))
    thinking.chat_template = qwen_template(handler=False)
    kinds = {"hermes": (own, "hermes", "all"), "qwen3": (thinking, "template", "last")}
    kinds["qwen3-each"] = (thinking, "template", "all")
    os.environ.update(ONE_THREAD)
    for name in [arguments.only] if arguments.only else kinds:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "rows.jsonl"
            with file.open("w", encoding="utf-8") as stream:
                stream.writelines(json.dumps(conversation(n)) + "\n" for n in range(rows))
            result = {"rows": rows, "megabytes": file.stat().st_size / 1e6, "template": name}
            result |= measured(Path(folder), *kinds[name], rows, arguments.trl)
            result["machine"] = machine()
            print(json.dumps(result, indent=1))
            save_result("data", f"{name}-{rows}-rows", result)


if __name__ == "__main__":
    main()
