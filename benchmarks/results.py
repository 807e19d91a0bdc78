"""Result files of benchmark cells: one JSON file each, written whole or not at all.

They lie in `benchmarks/results/<subject>/<processor>/`. A cell whose file is there is done on that
processor, so an interrupted benchmark goes on with the first cell that has none; delete a file to
measure its cell again. Nothing here measures.
"""

import json
import os
import re
import statistics
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import psutil

from benchmarks.worker import Record

RESULTS = Path(__file__).with_name("results")


def result_file(subject: str, name: str) -> Path:
    """Where a cell's result lies or will lie, measured on this machine's processor."""
    folder = re.sub(r"[^a-z0-9]+", "-", processor().lower()).strip("-")
    return RESULTS / subject / folder / f"{name}.json"


def save_result(subject: str, name: str, result: Record) -> Path:
    """Write a cell's result."""
    file = result_file(subject, name)
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_name(f".{file.name}")
    unfinished.write_text(json.dumps(result, indent=1) + "\n")
    return unfinished.rename(file)


def load_results(subject: str) -> list[Record]:
    """All results of a subject, by processor and file name."""
    files = sorted((RESULTS / subject).glob("*/[!.]*.json"))
    return [json.loads(file.read_text()) for file in files]


def medians(steps: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The median of each number over the steps; of the peak memory, the largest."""
    found = {name: statistics.median(step[name] for step in steps) for name in steps[0]}
    if "peak_bytes" in found:
        found["peak_bytes"] = max(step["peak_bytes"] for step in steps)
    return found


def ratio(ours: Sequence[Record], theirs: Sequence[Record], key: str) -> float:
    """The median over rounds of their number over ours of the same round."""
    pairs = zip(ours, theirs, strict=True)
    return statistics.median(their[key] / our[key] for our, their in pairs)


@cache
def processor() -> str:
    """The processor's name without what every name has; of AMD's, which share one, the family."""
    lines = [line.partition(":") for line in Path("/proc/cpuinfo").read_text().splitlines()]
    facts = {key.strip(): value.strip() for key, _, value in reversed(lines)}
    name = facts.get("model name", "unknown")
    for word in ("(R)", "Processor", "@"):
        name = name.replace(word, "")
    family = f" family {facts['cpu family']}" if facts.get("vendor_id") == "AuthenticAMD" else ""
    return " ".join(name.split()) + family


def machine() -> Record:
    """What the numbers are taken on, as each result holds it."""
    text = Path("/proc/cpuinfo").read_text()
    flags = next((line for line in text.splitlines() if line.startswith("flags")), "").split()
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "bf16": [flag for flag in ("avx512_bf16", "amx_bf16") if flag in flags],
        "load_average": os.getloadavg()[0],
        "time": time.strftime("%Y-%m-%d %H:%M"),
    }
