"""`assay fill SWEEP`: runs every missing run of a sweep, one process on each device."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.output import Interrupted, Outcome
from assay.cli.run import Despite
from assay.pages.safe_console import tell

if TYPE_CHECKING:
    from assay.lab.sweep.read_sweep import SweepFile


def fill(
    root: Path,
    file: Annotated[Path, typer.Argument(metavar="SWEEP.toml", help="The sweep file.")],
    devices: Annotated[
        str | None,
        typer.Option(help="Such as 0,1 for two GPUs, or cpu; else every GPU, or the CPU."),
    ] = None,
    workers: Annotated[
        int,
        typer.Option(min=1, help="Runs at a time on each device; they share the cores."),
    ] = 1,
    only: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="One run of the sweep, as 'assay matrix' names it."),
    ] = None,
    despite: Despite = None,
) -> Outcome:
    """Run what a sweep lacks: missing runs are started, stopped ones are resumed."""
    from assay.lab.sweep.missing_runs import devices_of
    from assay.lab.sweep.read_sweep import files_in_order

    places = devices_of(devices)
    outcomes: list[Outcome] = []
    *before, last = files_in_order(file)
    for found, name in [*((each, None) for each in before), (last, only)]:
        outcomes.append(filled(root, found, places, workers, despite, name))
        if outcomes[-1].exit_code:
            break  # what comes after it may stand on its winner
    last = outcomes[-1]
    lists = ("ran", "failed", "finished_before", "running_elsewhere")
    together = {name: [x for each in outcomes for x in each.result[name]] for name in lists}
    shown = [line for each in outcomes for line in each.shown]
    warnings = [line for each in outcomes for line in each.warnings]
    result = {**together, "winner": last.result["winner"]}
    return Outcome(result, shown, last.findings, warnings, exit_code=last.exit_code)


def filled(
    root: Path,
    found: "SweepFile | Path",
    places: Sequence[str],
    workers: int,
    despite: str | None,
    only: str | None = None,
) -> Outcome:
    """Run what a sweep lacks and record its winner, or what an experiment lacks."""
    from assay.lab.sweep.matrix.recommendation import Settled
    from assay.lab.sweep.matrix.request import winner_of_file
    from assay.lab.sweep.missing_runs import experiment_work, missing_work, run_jobs

    if isinstance(found, Path):
        file, work = found, experiment_work(root, found)
        name = found.stem
    else:
        file, work = found.file, missing_work(root, found, only)
        name = found.sweep.name
    tell(f"{name}: {len(work.jobs)} to run, {len(work.finished)} finished, on {', '.join(places)}")
    try:
        done = run_jobs(root, name, work.jobs, places, tell, despite, workers)
    except KeyboardInterrupt:
        raise Interrupted(f"interrupted; continue with 'assay fill {file}'") from None
    failed = [each for each in done if each.code]
    settled = Settled(None, "") if isinstance(found, Path) else winner_of_file(root, file)
    result = {
        "ran": [{"run": d.job.name, "device": d.device, "had": d.job.had} for d in done],
        "failed": [{"run": d.job.name, "log": d.log, "said": d.said} for d in failed],
        "finished_before": work.finished,
        "running_elsewhere": work.busy,
        "winner": settled.winner,
    }
    runs = {d.job.name for d in done}
    count = len(runs - {d.job.name for d in failed})
    said = f"{count} of {len(runs)} runs finished" if done else "nothing is missing"
    see = "" if isinstance(found, Path) else f"; see 'assay matrix {file}'"
    shown = [f"{name}: {said}{see}", *([settled.line] if settled.line else [])]
    findings = [finding(d.job.name, d.said, d.log) for d in failed]
    warnings = [f"{name} is running elsewhere and was left alone" for name in work.busy]
    warnings += [settled.note] if settled.note else []
    return Outcome(result, shown, findings, warnings, exit_code=1 if failed else 0)


def finding(name: str, said: str, log: Path) -> dict[str, Any]:
    """A run that failed, in one line."""
    what = said.removeprefix("assay: ")
    return {"severity": "error", "what": what, "evidence": name, "fix": f"read {log}"}
