"""What is done with an experiment file: run, resume, check, synthesise, fill."""

import gc
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.cli.output import Lang, Outcome, executing, interrupted, run_names, taken
from assay.pages.safe_console import tell

if TYPE_CHECKING:
    from assay.experiment.experiment import Experiment
    from assay.lab.sweep.missing_runs import Done, Work
    from assay.lab.sweep.read_sweep import SweepFile

Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Replace a value; may be repeated."),
]
Despite = Annotated[
    str | None,
    typer.Option(metavar="REASON", help="Go on although checks end with errors; marks the pages."),
]

RunName = Annotated[
    str,
    typer.Argument(metavar="RUN", help="NAME, NAME/ID or NAME#SEED.", autocompletion=run_names),
]
Full = Annotated[bool, typer.Option("--full", help="Show all tables and examples here too.")]


def run(
    root: Path,
    file: Path,
    overrides: Overrides = None,
    new: bool = False,
    or_resume: bool = False,
    despite: Despite = None,
    lang: Lang = "en",
    full: Full = False,
) -> Outcome:
    """Train an experiment's stages, measure, write the page.

    Checks first what `assay check` checks.

    file: The experiment file.
    new: Start another run of a name that has runs.
    or_resume: Resume an unfinished run; leave a finished one.
    """
    from assay.errors import InputError

    if new and or_resume:
        raise InputError("--new and --or-resume exclude each other", fix="choose one")
    name = read_alone(file, overrides).name
    from assay.runs.registry import refuse_existing

    refuse_existing(root, name, new or or_resume)
    import_checks()
    from assay.cli.results import run_result, runs_shown
    from assay.library.actions import run_seeds

    with executing(root, name):
        made = run_seeds(
            file,
            overrides=overrides or (),
            root=root,
            new=new,
            or_resume=or_resume,
            despite=despite,
            lang=lang,
        )
        results = [{**run_result(each), "did": each.did} for each in made]
        shown = runs_shown(made, full)
    return Outcome({"runs": results}, shown, lang=lang)


def resume(
    root: Path,
    run: RunName,
    past_guard: bool = False,
    despite: Despite = None,
    ranks: Annotated[int | None, typer.Option(min=1)] = None,
    lang: Lang = "en",
    full: Full = False,
) -> Outcome:
    """Continue a run from its last checkpoint.

    past_guard: Go on although a guard stopped the run.
    ranks: So many processes go on; else as before.
    """
    from assay.cli.results import run_result, runs_shown
    from assay.library.actions import open_run
    from assay.library.actions import resume as resume_run

    handle = open_run(run, root=root, lang=lang)
    with executing(root, handle.name):
        made = resume_run(
            handle,
            root=root,
            past_guard=past_guard,
            despite=despite,
            ranks=ranks,
            lang=lang,
        )
        return Outcome(run_result(made), runs_shown([made], full), lang=lang)


def check(
    root: Path,
    file: Path,
    overrides: Overrides = None,
    full: bool = False,
    probe: Annotated[int, typer.Option(min=0, max=1000)] = 0,
    gpu: str | None = None,
    memory: Annotated[float | None, typer.Option(min=1)] = None,
    gpus: Annotated[int, typer.Option(min=1, max=1024)] = 1,
    tokens: Annotated[int | None, typer.Option(min=1)] = None,
) -> Outcome:
    """Check data, gold answers, leakage, memory and time.

    Trains nothing.

    file: The experiment file.
    full: Show every note and every number.
    probe: Prompts that each stage's start answers.
    gpu: Only: what fits on a card, by config.json: 4090, h100, ...
    memory: GiB of the card, in place of its name's.
    gpus: How many such cards.
    tokens: Of the longest row; else counted from characters.
    """
    experiment = read_alone(file, overrides)
    if gpu is not None or memory is not None:
        from assay.lab.check.cards import card_of, fits, left_out
        from assay.pages.command_tables import fit_lines

        card = card_of(gpu, memory)
        made = fits(experiment, root, card, gpus, tokens)
        code = 2 if any(each.choice is None for each in made) else 0
        shown = fit_lines(made, card.gib, gpus)
        return Outcome(made, shown, warnings=left_out(experiment), exit_code=code)
    import_checks()
    from assay.judge.templates import filled
    from assay.library.actions import check as check_spec
    from assay.pages.command_tables import check_lines, check_tables, note_lines

    report = check_spec(file, overrides=overrides or (), root=root, probe=probe)
    figures = {"file": file, **{f"{kind}s": count for kind, count in report.counts.items()}}
    words = filled("{file}: {errors:errors}, {warnings:warnings}, {notes:notes}", figures)
    result = {"counts": report.counts, "numbers": report.numbers}
    code, counted = 2 if report.failed else 0, () if probe else ("note",)
    if full:
        shown = [*check_tables(report.numbers), words]
        return Outcome(result, shown, report.findings, exit_code=code)
    # What a probe says is a note that was asked for.
    notes = [] if probe else [e.what for e in report.findings if e.severity == "note"]
    shown = [*check_lines(report.numbers), *note_lines(notes), words]
    verb = "synthesise" if any(each.startswith("synthesise.") for each in report.numbers) else "run"
    shown += [] if report.failed else [f"next: assay {verb} {file}"]
    shown += [f"everything: assay check {file} --full"]
    return Outcome(result, shown, report.findings, counted=counted, exit_code=code)


def read_alone(file: Path, overrides: list[str] | None) -> "Experiment":
    """The experiment. Raises InputError for what is wrong with the file itself, before torch is
    imported, which takes some seconds."""
    from assay.experiment.read_file import read_experiment

    return read_experiment(file, overrides or ())


def import_checks() -> None:
    """Import what works with an experiment, without looking for garbage: all of it stays."""
    gc.disable()
    import assay.lab.check.all_checks  # noqa: F401

    gc.freeze()
    gc.enable()


def synthesise(
    root: Path,
    file: Path,
    name: Annotated[str | None, typer.Argument()] = None,
    overrides: Overrides = None,
    lang: Lang = "en",
) -> Outcome:
    """Make rows with a teacher, or stored selections.

    Of [synthesise.NAME] and [selections.NAME] tables. Goes on where it was stopped and pays no
    answer twice.

    file: The experiment file.
    name: One such table; omitted: all of a kind, rows first.
    """
    from assay.experiment.selection_tables import SELECTIONS, SYNTHESISE
    from assay.lab.session.session import generate_tables
    from assay.lab.session.validate import read_whole
    from assay.pages.html import write_page
    from assay.pages.live_display import PlainProgress
    from assay.pages.page import Mark, Text
    from assay.pages.synthesis_page import synthesis_page, synthesis_result
    from assay.pages.words import in_language, words

    read_alone(file, overrides)
    import_checks()
    experiment = read_whole(file, overrides or (), root)
    kind = SYNTHESISE if experiment.synthesise or not experiment.selections else SELECTIONS
    kind = SELECTIONS if name in experiment.selections else kind
    made = generate_tables(experiment, root, name, PlainProgress(), kind)
    shown, results, code = [], [], 0
    for each in made:
        if kind == SELECTIONS:
            shown.append(f"{each.name}: {each.made} queries made; {each.file}")
            shown += [f"  {key}: {value:.4g}" for key, value in each.health.numbers().items()]
            results.append(taken(each, "name", "queries", "made", "file", "health"))
            continue
        page = synthesis_page(each, words(lang))
        written = write_page(page, in_language(each.file.with_name("report.html"), lang))
        shown += [Text(Mark(page.title)), *page.blocks, Text(f"{written}", fit="whole")]
        results.append({**synthesis_result(each), "page": written})
        code = max(code, int(bool(each.stopped)))
    findings = [finding for each in made for finding in each.findings]
    result = {"selections" if kind == SELECTIONS else "tables": results}
    return Outcome(result, shown, findings, exit_code=code, lang=lang)


def fill(
    root: Path,
    file: Annotated[Path, typer.Argument(metavar="SWEEP.toml")],
    devices: str | None = None,
    workers: Annotated[int, typer.Option(min=1)] = 1,
    only: Annotated[str | None, typer.Option(metavar="RUN")] = None,
    on: Annotated[str | None, typer.Option(metavar="ray | ADDRESS")] = None,
    despite: Despite = None,
) -> Outcome:
    """Start or resume the runs that a sweep lacks.

    file: The sweep file.
    devices: Such as 0,1 for two GPUs, or cpu; else every GPU, or the CPU.
    workers: Runs at a time on each device; they share the cores.
    only: One run of the sweep by name, or one seed: NAME#SEED.
    on: Spread the runs with Ray: on this machine, or on the cluster at an address.
    """
    from assay.engines.ray_pool import connect, need_ray

    if on is not None:
        need_ray(on, "--on")
    from assay.lab.sweep.missing_runs import (
        devices_of,
        missing_work,
        on_cluster,
        refuse_numbers,
        run_jobs,
    )
    from assay.lab.sweep.read_sweep import read_sweep

    sweep, options = read_sweep(file), {"tell": tell, "despite": despite, "workers": workers}
    with ExitStack() as stack:
        if on is None:
            places = devices_of(devices)
            where, execute = ", ".join(places), partial(run_jobs, devices=places, **options)
        else:
            refuse_numbers(devices)
            pool = stack.enter_context(closing(connect(on, "--on")))
            count = len(pool.nodes())
            where = f"{count} nodes of {on}" if count > 1 else on
            execute = partial(on_cluster, root=root, pool=pool, devices=devices, **options)
        work = missing_work(root, sweep, only)
        sizes = f"{len(work.jobs)} to run, {len(work.finished)} finished"
        tell(f"{sweep.sweep.name}: {sizes}, on {where}")
        try:
            done = execute(work.jobs)
        except KeyboardInterrupt:
            raise interrupted(f"assay fill {sweep.file}") from None
    return filled(root, sweep, work, done)


def filled(root: Path, sweep: "SweepFile", work: "Work", done: "list[Done]") -> Outcome:
    """What became of the runs that a sweep lacked, and its winner."""
    from assay.errors import Finding
    from assay.lab.monitor.stage_health import unlearned
    from assay.lab.sweep.request import winner_of_file
    from assay.pages.words import words
    from assay.runs.registry import newest
    from assay.runs.run_names import parse_run_name

    name = sweep.sweep.name
    failed, settled = [each for each in done if each.code], winner_of_file(root, sweep)
    finished = [*dict.fromkeys(each.job.name for each in done if not each.code), *work.finished]
    wanted = [parse_run_name(each) for each in finished]
    runs = [newest(root, each.name, each.seed) for each in wanted if each.seed is not None]
    idle = [each for run in runs if run is not None for each in unlearned(run)]
    result = {
        "nothing_learned": [{**taken(each, "code"), **each.values} for each in idle],
        "ran": [{"run": d.job.name, "device": d.device, "had": d.job.had} for d in done],
        "failed": [{"run": d.job.name, "log": d.job.log, "said": d.failure} for d in failed],
        "finished_before": work.finished,
        "running_elsewhere": work.busy,
        "winner": settled.winner,
    }
    names = {d.job.name for d in done}
    count = len(names - {d.job.name for d in failed})
    state = f"{count} of {len(names)} runs finished" if done else "nothing is missing"
    shown = [f"{name}: {state}; see 'assay matrix {sweep.file}'", settled.line]
    findings = [
        Finding("error", d.failure.removeprefix("assay: "), d.job.name, f"read {d.job.log}")
        for d in failed
    ]
    w = words()
    findings += [
        Finding(each.severity, w(f"finding.{each.code}", names=each.values["name"]))
        for each in idle
    ]
    warnings = [f"{each} is running elsewhere and was left alone" for each in work.busy]
    warnings += [settled.note] if settled.note else []
    code = 1 if failed else 0
    return Outcome(result, list(filter(None, shown)), findings, warnings, exit_code=code)
