"""`assay runs`: lists the lab's runs."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from assay.cli.output import Outcome

STALE = "the index and the runs' folders differ; make it again with 'assay runs --rebuild'"
BROKEN = "damaged"
NO_NAME = "no run can have this name (rename the folder)"
HEADS = ("run", "seed", "status", "stage", "step", "score", "on")
TRIALS = ("benchmark", "looks", "runs", "of deleted runs", "false 'better' expected")
STATUS = HEADS.index("status")
STYLES = {"finished": "green", "running": "cyan", "interrupted": "yellow", "failed": "bold red"}
STYLES[BROKEN] = STYLES["failed"]


def runs(
    root: Path,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Make the index again from the runs' folders.")
    ] = False,
    trials: Annotated[
        bool,
        typer.Option(
            "--trials", help="Show instead how often each benchmark was looked at, over all runs."
        ),
    ] = False,
) -> Outcome:
    """List the lab's runs: how they stand and what they scored."""
    if trials:
        return ledger(root)
    from assay.runs.registry import indexed_runs, rebuild_index
    from assay.runs.run_directory import RUNS, RunDirectory, all_runs, unnameable

    if not (root / RUNS).is_dir():
        return Outcome([], [f"no runs in {root}"])
    if rebuild:
        rebuild_index(root)
    indexed = {RunDirectory(root, line.name, line.id): line for line in indexed_runs(root)}
    there = all_runs(root)
    stale = [] if set(there) == set(indexed) else [STALE]
    found = [asdict(indexed[run]) for run in there if run in indexed]
    broken = [f"{run} is damaged: {x.message}" for run, x in indexed.items() if x.status == BROKEN]
    unnamed = [f"{path} is left out: {NO_NAME}" for path in unnameable(root)]
    return Outcome(found, [rendered(found)], warnings=[*stale, *broken, *unnamed])


def ledger(root: Path) -> Outcome:
    """The ledger of trials, benchmark by benchmark."""
    from assay.judge.verdict import ALPHA
    from assay.runs.trial_ledger import looks_by_benchmark

    looks = looks_by_benchmark(root)
    false = {name: each.looks * ALPHA / 2 for name, each in looks.items()}
    result = {
        name: {**asdict(each), "expected_false_better": false[name]} for name, each in looks.items()
    }
    rows = [
        (name, *map(str, (each.looks, each.runs, each.deleted)), f"{false[name]:.2g}")
        for name, each in looks.items()
    ]
    unknown = max((each.unknown for each in looks.values()), default=0)
    lost = [f"{unknown} runs are gone or damaged, and how often they looked is not known"]
    return Outcome(result, [laid_out([TRIALS, *rows])], warnings=lost if unknown else [])


def rendered(found: Sequence[Mapping[str, Any]]) -> Text:
    """One line a run, in columns."""
    return laid_out([HEADS, *map(cells, found)], STATUS)


def laid_out(rows: Sequence[Sequence[str]], status: int | None = None) -> Text:
    """Columns under their heads; `status` is the place of the column in colours.

    Laid out here because rich measures and wraps every cell, which takes a second for a thousand
    runs.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    text = Text(no_wrap=True, overflow="ignore")
    for row in rows:
        text.append("\n" if text else "")
        for place, (cell, width) in enumerate(zip(row, widths, strict=True)):
            style = "bold" if row is rows[0] else STYLES.get(cell, "") if place == status else ""
            text.append(cell if place == len(row) - 1 else cell.ljust(width + 2), style)
    return text


def cells(line: Mapping[str, Any]) -> tuple[str, ...]:
    """The texts of one run, as HEADS names them."""
    from assay.pages.words import percent

    score = "" if line["score"] is None else percent(line["score"])
    name, step = f"{line['name']}/{line['id']}", str(line["step"] or "")
    return name, str(line["seed"]), line["status"], line["stage"], step, score, line["on"]
