"""The table of docs/tools-lab.md; `python -m tests.experiments.table` prints it from the files."""

from assay.experiment.read_file import read_experiment
from tests.experiments.tiny import LOG


def table() -> str:
    """A line for each experiment, with its repaired version: what it asks."""
    names = [file.stem for file in LOG]
    lines = ["| experiment | question |", "|---|---|"]
    for file in LOG:
        if file.stem.endswith("-repaired"):
            continue
        repaired = f"{file.stem}-repaired"
        link = f"[{file.stem}](../experiments/tools/{file.name})"
        if repaired in names:
            link += f" [(repaired)](../experiments/tools/{repaired}.toml)"
        lines.append(f"| {link} | {read_experiment(file).about} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
