"""The page of results, in Markdown. Measures nothing."""

from collections import Counter
from collections.abc import Mapping, Sequence

from benchmarks.gpu.rows import Row
from benchmarks.worker import Record

TITLES: Mapping[str, str] = {
    "score": "Log-probs and entropies",
    "gradients": "Gradients of every objective",
    "sample": "Sampling",
    "updates": "Optimizer and training steps",
    "memory": "Memory",
    "resume": "A whole run, killed and resumed",
    "handover": "vLLM and the proof of its hand-over",
    "ranks": "Several processes",
    "steps": "Steps beside TRL",
    "trainer": "The trainer alone",
    "rates": "Sampling beside vLLM",
}


def markdown_page(facts: Record, found: Mapping[str, Sequence[Row]]) -> str:
    """All sections so far."""
    counts = Counter(row.status for rows in found.values() for row in rows)
    total = ", ".join(f"{number} {status}" for status, number in sorted(counts.items()))
    lines = [f"# {facts['name']}", "", f"`{facts['command']}`, {facts['time']}: {total}.", ""]
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    lines += [f"{facts['about']}. {versions}.", ""]
    for section, rows in found.items():
        lines += [f"## {TITLES[section]}", ""]
        lines += ["| what | result | found | allowed |", "|---|---|---:|---:|"]
        for row in rows:
            cells = (row.what, row.status, row.found, row.allowed)
            lines.append("| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |")
        lines.append("")
    return "\n".join(lines)
