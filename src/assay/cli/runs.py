"""`assay runs`: the lab's runs at a glance."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from assay.cli.output import Outcome

STYLES = {"finished": "green", "running": "cyan", "interrupted": "yellow", "failed": "bold red"}


def runs(
    root: Path,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Make the index again from the runs' folders.")
    ] = False,
) -> Outcome:
    """List the lab's runs: how they stand and what they scored."""
    from assay.lab.run_directory import all_runs

    if rebuild:
        from assay.lab.registry import rebuild_index

        rebuild_index(root)
    found = [run_line(run) for run in all_runs(root)]
    table = Table("run", "seed", "status", "stage", "step", "score", "on")
    for line in found:
        status = Text(line["status"], style=STYLES[line["status"]])
        score = "" if line["score"] is None else f"{line['score']:.1%}"
        step = str(line["step"] or "")
        name, seed = f"{line['name']}/{line['id']}", str(line["seed"])
        table.add_row(name, seed, status, line["stage"], step, score, line["on"])
    return Outcome(found, [table if found else f"no runs in {root}"])


def run_line(run: Any) -> dict[str, Any]:
    """A run's status, and the last checkpoint's score on its first reporting evaluation."""
    from assay.lab.answers import evaluation_records, measured_checkpoints
    from assay.lab.records import read_scores
    from assay.lab.status import read_status

    status = read_status(run.path)
    line = {"name": run.name, "id": run.id, "seed": status.seed, "status": status.status}
    line |= {"stage": status.stage, "step": status.step, "started": status.started}
    line |= {"score": None, "on": "", "message": status.message}
    for record in evaluation_records(run):
        measured = measured_checkpoints(run, record)
        if record.role == "report" and measured:
            score = read_scores(run, record, measured[-1]).mean
            return line | {"score": score, "on": f"{record.name} of {measured[-1]}"}
    return line
