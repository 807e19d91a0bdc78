"""`assay report` and `costs`: what one run recorded."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from assay.cli.output import Lang, Outcome, run_names
from assay.cli.run import Full, RunName
from assay.errors import InputError


def samples(root: Path, id_: str) -> Outcome:
    """One sample, or all samples of a row or item, by id."""
    from assay.runs.history import find_samples
    from assay.runs.run_names import find_run, parse_run_name

    name, _, rest = id_.partition(":")
    run = find_run(root, parse_run_name(name))
    lines = find_samples(run, rest)
    rows = [{"id": f"{run}:{line['sample_id']}", **line} for line in lines]
    return Outcome(rows, [words_of(line) for line in rows])


def words_of(line: Mapping[str, Any]) -> str:
    """One sample for people: numbers first, then text and tokens."""
    from assay.cli.output import quoted
    from assay.pages.words import flat
    from assay.runs.records import transcript

    judged = "score" if "score" in line else "reward"
    parts = ", ".join(f"{name} {value:g}" for name, value in line["parts"].items())
    value = "abstained" if line[judged] is None else f"{line[judged]:g}"
    facts = [flat(line["id"]), f"  {judged}: {value}" + (f" ({parts})" if parts else "")]
    facts += [
        f"  {name}: {flat(str(line[name]))}"
        for name in ("why", "error", "advantage", "ended", "file")
        if line.get(name) not in (None, "")
    ]
    facts += [
        f"  fact {flat(name)}: {flat(str(value))}"
        for name, value in (line.get("facts") or {}).items()
    ]
    text = f"text:\n{quoted(line['text'])}"
    if line.get("messages"):
        text = f"conversation:\n{quoted(transcript(line['messages']))}"
    tokens = " ".join(map(str, line["tokens"]))
    return "\n".join([*facts, text, f"tokens ({len(line['tokens'])}): {tokens}", ""])


def costs(
    root: Path,
    run: RunName,
    lang: Lang = "en",
) -> Outcome:
    """Show what a run's helper models cost."""
    from assay.lab.monitor.run_costs import run_costs
    from assay.pages.command_tables import costs_page
    from assay.pages.words import words
    from assay.runs.run_names import find_run, parse_run_name

    spending = run_costs(find_run(root, parse_run_name(run)))
    return Outcome(spending, costs_page(spending, words(lang)), lang=lang)


def report(
    root: Path,
    run: Annotated[str, typer.Argument(metavar="RUN | RUN:ID", autocompletion=run_names)],
    stage: str | None = None,
    first: Annotated[int | None, typer.Option("--from", min=1)] = None,
    last: Annotated[int | None, typer.Option("--to", min=1)] = None,
    steps: Annotated[int | None, typer.Option("--last", min=1)] = None,
    generations: Annotated[int | None, typer.Option(min=1)] = None,
    lang: Lang = "en",
    bfcl: Path | None = None,
    full: Full = False,
) -> Outcome:
    """Show a run, or one of its samples.

    Of a run, the page is written too.

    run: NAME, NAME/ID or NAME#SEED; or one sample of it: RUN:EVALUATION/CHECKPOINT/ITEM#REPEAT or
        RUN:STAGE/STEP/ROW#SAMPLE, as pages write it; without #N all of them; RUN:ITEM for an item
        everywhere in the run.
    stage: The stage whose progress is shown; else the last one.
    first: Progress since this step; else since the last report.
    last: Progress until this step; else until now.
    steps: Progress over the last so many steps.
    generations: The same over the last so many generations, in whole steps.
    bfcl: Write the run's answers as BFCL's result files into this folder.
    """
    from assay.cli.results import bfcl_results, run_result, runs_shown
    from assay.compare.arm import is_file

    if is_file(run):
        fix = f"'assay compare {run}' shows its scores"
        raise InputError("is a file of another tool", file=run, fix=fix)
    if ":" in run:
        return samples(root, run)
    from assay.lab.monitor.progress import step_before
    from assay.library.actions import open_run
    from assay.pages.run_page import ProgressSpan, write_report
    from assay.runs.history import leaving_out, left_out

    handle = open_run(run, root=root, lang=lang)
    if bfcl is not None:
        return Outcome(*bfcl_results(handle.directory, bfcl))
    if steps or generations:
        if first or last or (steps and generations):
            raise InputError("give one span: --from and --to, --last, or --generations")
        first = step_before(handle.directory, stage, steps or 0, generations or 0)
    span = ProgressSpan(stage, first, last)
    with leaving_out(handle.directory):
        write_report(handle.directory, lang, span)
        progressing = span != ProgressSpan() or full or handle.status != "finished"
        shown = runs_shown([handle], full, span if progressing else None)
        result = run_result(handle, span)
        damaged = bool(left_out())
    return Outcome(result, shown, lang=lang, exit_code=int(damaged))
