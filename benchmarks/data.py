"""What preparing the rows of a large data set costs, beside one pass of the template and tokenizer.

    python -m benchmarks.data --rows 600

Rows like those of report 000, made here: conversations of 32 messages with twelve tools and 6,600
to 8,900 tokens; 14,000 of them are 377 MB of JSONL. The baseline is what TRL's SFTTrainer maps over
such rows: `apply_chat_template` to text, then the tokenizer, once for each row. Measured against
it, in CPU-seconds: reading the file, rendering each conversation with its bounds, and the same from
what was prepared before. SmolLM2's tokenizer and the rendering `hermes`, whose
Jinja the baseline runs; one core. The result
lies in `benchmarks/results/data`.
"""

import json
import os
import random
import tempfile
import time
from argparse import ArgumentParser
from collections.abc import Callable
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from assay.data.formats.formats import iter_items
from assay.data.renderings.prepared import prepared
from assay.data.renderings.rendering import Renderer, chat_template
from assay.data.renderings.template import qwen_template
from assay.data.row import Row
from benchmarks.models import model_folder
from benchmarks.results import machine, save_result

TOOLS, MESSAGES = 12, 32
TEXT = """the report of station which river level falls below mark in winter and measured value
differs from forecast by more than three percent call again with date of last reading then compare
average over ten days before answer is given to operator who keeps record for office"""
WORDS = TEXT.split()


def prose(source: random.Random, count: int) -> str:
    """So many words, a tenth of them numbers."""
    words = []
    for _ in range(count):
        number = source.random() < 0.1
        words.append(str(source.randrange(99_999)) if number else source.choice(WORDS))
    return " ".join(words)


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


def measured(renderer: Renderer, file: Path, rows: int, cache: Path) -> dict[str, Any]:
    """Milliseconds a row, and passes of template and tokenizer."""
    template = chat_template(renderer)
    base, counts = seconds(lambda: one_pass(renderer.tokenizer, file, template))
    read, items = seconds(lambda: [*iter_items(file, "messages")])
    talks = [(item.messages, item.tools) for item in items if isinstance(item, Row)]
    os.environ["ASSAY_CACHE"] = str(cache)
    rendered, first = seconds(lambda: [hash(prepared(renderer, *t, False)) for t in talks])
    again, second = seconds(lambda: [hash(prepared(renderer, *t, False)) for t in talks])
    assert first == second
    return {
        "tokens": [min(counts), max(counts)],
        "pass_ms": base / rows * 1e3,
        "read_ms": read / rows * 1e3,
        "rendered_ms": rendered / rows * 1e3,
        "again_ms": again / rows * 1e3,
        "passes": (read + rendered) / base,
        "passes_again": (read + again) / base,
    }


def main() -> None:
    """Measure, print and save."""
    parser = ArgumentParser(prog="python -m benchmarks.data")
    parser.add_argument("--rows", type=int, default=14_000)
    rows = parser.parse_args().rows
    folder = model_folder("smollm2")
    thinking = AutoTokenizer.from_pretrained(folder)
    thinking.chat_template = qwen_template(handler=False)
    renderers = {
        "hermes": Renderer(AutoTokenizer.from_pretrained(folder), "hermes"),
        "qwen3": Renderer(thinking, "template"),
    }
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "rows.jsonl"
        with file.open("w", encoding="utf-8") as stream:
            stream.writelines(json.dumps(conversation(n)) + "\n" for n in range(rows))
        result: dict[str, Any] = {"rows": rows, "megabytes": file.stat().st_size / 1e6}
        for name, renderer in renderers.items():
            result[name] = measured(renderer, file, rows, Path(place) / name)
    result["machine"] = machine()
    print(json.dumps(result, indent=1))
    save_result("data", f"{rows}-rows", result)


if __name__ == "__main__":
    main()
