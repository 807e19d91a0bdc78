"""The table of docs/tools-lab.md; `python -m tests.experiments.table` prints it from the files."""

from assay.experiment.read_file import read_experiment
from tests.experiments.tiny import LOG


def table() -> str:
    """A line for each experiment: what it asks, what is wrong with it, and its repaired twin."""
    names = [file.stem for file in LOG]
    lines = ["| experiment | what it asks | known faults | twin |", "|---|---|---|---|"]
    for file in LOG:
        found = read_experiment(file)
        note = found.note
        assert note is not None
        faults = "; ".join(note.faults).replace("<think>", "`<think>`") or "–"
        twin = f"{file.stem}-repaired"
        shown = f"[{twin}](../experiments/tools/{twin}.toml)" if twin in names else "–"
        link = f"[{file.stem}](../experiments/tools/{file.name})"
        lines.append(f"| {link} | {found.about} | {faults} | {shown} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
