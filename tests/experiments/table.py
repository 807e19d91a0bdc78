"""The table of docs/tools-lab.md; `python -m tests.experiments.table` prints it from the files."""

from assay.experiment.read_file import read_experiment
from tests.experiments.tiny import LOG


def table() -> str:
    """A line for each experiment: what it asks, and its repaired version."""
    names = [file.stem for file in LOG]
    lines = ["| experiment | question | repaired |", "|---|---|---|"]
    for file in LOG:
        if file.stem.endswith("-repaired"):
            continue
        repaired = f"{file.stem}-repaired"
        shown = f"[repaired](../experiments/tools/{repaired}.toml)" if repaired in names else "–"
        link = f"[{file.stem}](../experiments/tools/{file.name})"
        lines.append(f"| {link} | {read_experiment(file).about} | {shown} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
