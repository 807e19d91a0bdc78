"""`assay runs`: the lab's runs at a glance."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from assay.cli.output import Outcome

STALE = "the index and the runs' folders differ; make it again with 'assay runs --rebuild'"
STYLES = {"finished": "green", "running": "cyan", "interrupted": "yellow", "failed": "bold red"}


def runs(
    root: Path,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Make the index again from the runs' folders.")
    ] = False,
) -> Outcome:
    """List the lab's runs: how they stand and what they scored."""
    from assay.lab.registry import indexed_runs, rebuild_index
    from assay.lab.run_directory import RUNS, RunDirectory, all_runs

    if not (root / RUNS).is_dir():
        return Outcome([], [f"no runs in {root}"])
    if rebuild:
        rebuild_index(root)
    indexed = {RunDirectory(root, line.name, line.id): line for line in indexed_runs(root)}
    there = all_runs(root)
    stale = [] if set(there) == set(indexed) else [STALE]
    found = [asdict(indexed[run]) for run in there if run in indexed]
    return Outcome(found, [rendered(found)], warnings=stale)


def rendered(found: Sequence[Mapping[str, Any]]) -> Table:
    """One line a run."""
    table = Table("run", "seed", "status", "stage", "step", "score", "on")
    for line in found:
        status = Text(line["status"], style=STYLES[line["status"]])
        score = "" if line["score"] is None else f"{line['score']:.1%}"
        name, seed = f"{line['name']}/{line['id']}", str(line["seed"])
        table.add_row(name, seed, status, line["stage"], str(line["step"] or ""), score, line["on"])
    return table
