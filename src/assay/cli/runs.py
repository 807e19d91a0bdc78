"""`assay runs`, `log`, `verify`, `protect`, `delete` and `doctor`: the lab and its files."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from assay.cli.output import Lang, Outcome, run_names
from assay.cli.run import RunName
from assay.pages.safe_console import console

RunOrCheckpoint = Annotated[
    str, typer.Argument(help="NAME or NAME@STAGE.step-N.", autocompletion=run_names)
]
COLOURS = {"ok": "green", "missing": "bold red", "optional": "yellow"}


def doctor(root: Path) -> Outcome:
    """Look at packages, device, disk and memory."""
    from assay.lab.check.machine import examine

    checks = examine(root)
    table = Table("", "", "found", "what to do")
    for check in checks:
        state = Text(check.state, style=COLOURS[check.state])
        table.add_row(state, check.name, check.found, check.mend)
    missing = any(check.state == "missing" for check in checks)
    return Outcome({"checks": checks}, [table], exit_code=1 if missing else 0)


def log(
    root: Path,
    run: Annotated[str | None, typer.Argument(metavar="RUN", autocompletion=run_names)] = None,
    note: str | None = None,
    lang: Lang = "en",
) -> Outcome:
    """Show the lab's notebook as Markdown; with --note, add to it.

    run: One run only: NAME, NAME/ID or NAME#SEED.
    note: Add a note to the run's entry.
    """
    from assay.errors import InputError
    from assay.pages.notebook import notebook
    from assay.runs.notes import add_note, read_notes
    from assay.runs.run_directory import check_lab
    from assay.runs.run_names import find_run, parse_run_name

    check_lab(root)
    if note is not None and run is None:
        raise InputError("a note needs a run", fix="write assay runs log RUN --note TEXT")
    directory = find_run(root, parse_run_name(run)) if run is not None else None
    if note is not None and directory is not None:
        written = add_note(root, str(directory), note)
        return Outcome(written, [f"noted for {written.about}: {written.text}"])
    text = notebook(root, directory, lang)
    notes = [n for n in read_notes(root) if directory is None or n.about == str(directory)]
    return Outcome({"markdown": text, "notes": notes}, [text.rstrip("\n")])


def delete(root: Path, name: RunOrCheckpoint) -> Outcome:
    """Delete a run or a checkpoint; refused where another run or a record refers to it."""
    from assay.runs.protection import delete_named

    path = delete_named(root, name)
    return Outcome({"deleted": str(path)}, [f"deleted {path}"])


def protect(
    root: Path,
    name: RunOrCheckpoint,
    why: Annotated[str, typer.Option()],
) -> Outcome:
    """Protect a run, or one of its checkpoints, from every command.

    why: The reason, shown to whoever tries to delete it.
    """
    from assay.runs.protection import protect_named

    path = protect_named(root, name, why)
    return Outcome({"protected": str(path), "why": why}, [f"protected {path}: {why}"])


def verify(root: Path, run: RunName) -> Outcome:
    """Name every file of a run that is damaged, missing or unknown; exit code 1 if there is one."""
    from assay.runs.run_names import find_run, parse_run_name
    from assay.runs.verify_files import verify_run

    directory = find_run(root, parse_run_name(run))
    verified = verify_run(directory)
    shown = [f"{fault.kind}: {fault.file}: {fault.problem}" for fault in verified.faults]
    shown += [f"no hash recorded: {name}" for name in verified.without]
    faults = f"{len(verified.faults)} damaged, missing or unknown"
    shown.append(f"{directory}: {verified.compared} files compared with their checksums, {faults}")
    result = {"run": str(directory), "path": directory.path, **asdict(verified)}
    return Outcome(result, shown, exit_code=int(bool(verified.faults)))


STALE = "the index and the runs' folders differ; make it again with 'assay runs --rebuild'"
BROKEN = "damaged"
NO_NAME = "no run can have this name (rename the folder)"
HEADS = ("run", "seed", "status", "stage", "step", "score", "on")
TRIALS = ("benchmark", "looks", "runs", "of deleted runs", "false 'better' expected")
STATUS = HEADS.index("status")
LEAST, ID = 8, len("/20260101T000000Z-000000")
"""Characters that stay of a long name's beginning and of the last column, and of the name's end."""
STYLES = {"finished": "green", "running": "cyan", "interrupted": "yellow", "failed": "bold red"}
STYLES |= {BROKEN: STYLES["failed"], "status": "bold"}


def runs(
    root: Path,
    rebuild: bool = False,
    trials: bool = False,
) -> Outcome:
    """List runs; also log, verify, protect, delete.

    rebuild: Make the index again from the runs' folders.
    trials: Show instead how often each benchmark was looked at, over all runs.
    """
    from assay.runs.run_directory import RUNS, RunDirectory, all_runs, check_lab, unnameable

    check_lab(root)
    if trials:
        return ledger(root)
    from assay.runs.registry import indexed_runs, rebuild_index

    if not (root / RUNS).is_dir():
        return Outcome([], [f"no runs in {root}"])
    if rebuild:
        rebuild_index(root)
    indexed = {RunDirectory(root, line.name, line.id): line for line in indexed_runs(root)}
    there = all_runs(root)
    stale = [] if set(there) == set(indexed) else [STALE]
    rows = [asdict(indexed[run]) for run in there if run in indexed]
    broken = [
        f"{x['name']}/{x['id']} is damaged: {x['message']}" for x in rows if x["status"] == BROKEN
    ]
    unnamed = [f"{path} is left out: {NO_NAME}" for path in unnameable(root)]
    shown = [laid_out([HEADS, *map(cells, rows)], STATUS)]
    return Outcome(rows, shown, warnings=[*stale, *broken, *unnamed])


def ledger(root: Path) -> Outcome:
    """The ledger of trials, benchmark by benchmark."""
    from assay.judge.verdict import ALPHA
    from assay.runs.registry import looks_by_benchmark

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


def laid_out(rows: Sequence[Sequence[str]], status: int | None = None) -> Text:
    """Columns under their heads, no wider than the terminal: long names lose their middle, and then
    lines their end; `status` is the place of the column in colours.

    Laid out here because rich measures and wraps every cell, which takes a second for a thousand
    runs.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    wide = console(sys.stdout).width
    room = wide - sum(widths[1:-1]) - 2 * len(widths[1:]) - min(widths[-1], LEAST)
    widths[0] = min(widths[0], max(room, LEAST + ID))
    lines = []
    for name, *rest in rows:
        short = name if len(name) <= widths[0] else f"{name[: widths[0] - ID - 1]}…{name[-ID:]}"
        line = Text()
        for place, (cell, width) in enumerate(zip([short, *rest], widths, strict=True)):
            style = STYLES.get(cell, "") if place == status else "" if lines else "bold"
            line.append(cell if place == len(rest) else cell.ljust(width + 2), style)
        line.truncate(wide, overflow="ellipsis")
        lines.append(line)
    return Text("\n", no_wrap=True, overflow="ignore").join(lines)


def cells(line: Mapping[str, Any]) -> tuple[str, ...]:
    """The texts of one run, as HEADS names them."""
    from assay.pages.words import percent

    score = "" if line["score"] is None else percent(line["score"])
    name, step = f"{line['name']}/{line['id']}", str(line["step"] or "")
    return name, str(line["seed"]), line["status"], line["stage"], step, score, line["on"]
