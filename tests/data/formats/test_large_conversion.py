"""14,000 HardGen conversations become verl's rows within 60 CPU-seconds and 1 GB of memory."""

import json
import random
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

CONVERSATIONS = 14_000
SECONDS, PEAK_GB = 60.0, 1.0
TOOLS, PARAMETERS, TURNS = 12, 4, 7
WORDS = ("account", "book", "cancel", "city", "date", "delay", "flight", "hotel", "invoice", "list")
WORDS += ("message", "note", "order", "payment", "price", "refund", "report", "room", "search")
WORDS += ("seat", "ticket", "total", "travel", "update", "user", "value", "weather", "week")
CONVERT = """
import sys
from assay.data.formats.convert_rows import Wanted, convert
from assay.data.formats.plain_text import PlainText
made = convert(sys.argv[1], sys.argv[2], Wanted(("verl",), "hardgen", text=PlainText("qwen3_fc")))
assert not made.dropped, made.dropped
print(sum(made.rows.values()))
"""


def sentence(draw: random.Random, words: int) -> str:
    """Some words and numbers."""
    return " ".join(draw.choice((*WORDS, str(draw.randrange(10**6)))) for _ in range(words))


def tool(draw: random.Random, number: int) -> dict:
    """The description of one function."""
    properties = {
        f"{draw.choice(WORDS)}_{n}": {"type": "string", "description": sentence(draw, 10)}
        for n in range(PARAMETERS)
    }
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    name = f"{draw.choice(WORDS)}_{draw.choice(WORDS)}_{number}"
    return {"name": name, "description": sentence(draw, 20), "parameters": parameters}


def call(draw: random.Random, tools: list[dict]) -> str:
    """One call as Python text."""
    chosen = draw.choice(tools)
    names = chosen["parameters"]["properties"]
    arguments = ", ".join(f"{name}={sentence(draw, 3)!r}" for name in names)
    return f"{chosen['name']}({arguments})"


def conversation(number: int) -> dict:
    """One row: turns of a question, two calls, their results and an answer."""
    draw = random.Random(number)
    tools = [tool(draw, n) for n in range(TOOLS)]
    turns: list[dict] = [{"role": "system", "tools": json.dumps(tools)}]
    for _ in range(TURNS):
        calls = [call(draw, tools) for _ in range(2)]
        results = [{text: {"status": "ok", "rows": [sentence(draw, 20)] * 2}} for text in calls]
        thought = f"<think>\n{sentence(draw, 60)}\n</think>\n\n[{', '.join(calls)}]"
        turns += [
            {"role": "user", "content": sentence(draw, 70)},
            {"role": "assistant", "content": thought},
            {"role": "tool", "content": repr(results)},
            {"role": "assistant", "content": sentence(draw, 50)},
        ]
    return {str(index): turn for index, turn in enumerate(turns)}


def lines(count: int) -> Iterator[str]:
    """The conversations as JSON lines, every one different."""
    return (json.dumps(conversation(number)) + "\n" for number in range(count))


@pytest.mark.slow
def test_a_large_file_is_converted_in_bounded_time_and_memory(tmp_path: Path) -> None:
    source, target = tmp_path / "hardgen.jsonl", tmp_path / "verl.parquet"
    with source.open("w", encoding="utf-8") as out:
        out.writelines(lines(CONVERSATIONS))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    arguments = [sys.executable, "-c", CONVERT, str(source), str(target)]
    done = subprocess.run(arguments, check=True, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert int(done.stdout) == CONVERSATIONS
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < SECONDS
    assert after.ru_maxrss * 1024 / 1e9 < PEAK_GB
