"""`assay import` takes over a run that another trainer made."""

from pathlib import Path
from typing import Annotated

import typer

from assay.cli.output import Lang, Outcome


def import_run(
    root: Path,
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="What `assay export` or the tool itself made.")
    ],
    from_: Annotated[str, typer.Option("--from", help="trl, verl or swift.")],
    name: Annotated[
        str | None, typer.Option(help="Name of the run; omitted: made of the folder's.")
    ] = None,
    stage: Annotated[
        str | None, typer.Option(help="What the stage is called; omitted: as its method.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(metavar="SOURCE", help="The base model, where the folder does not say it."),
    ] = None,
    task: Annotated[
        str, typer.Option(help="The task of a run that was made without Assay.")
    ] = "chat",
    config: Annotated[
        Path | None, typer.Option(help="verl: Hydra's config.yaml, where it lies elsewhere.")
    ] = None,
    log: Annotated[
        Path | None, typer.Option(help="verl: the file logger's lines, where they lie elsewhere.")
    ] = None,
    lang: Lang = "en",
) -> Outcome:
    """Take over a run that TRL, verl or ms-swift made.

    Its metrics, samples, checkpoints and settings.
    """
    from assay.errors import look_up
    from assay.lab.run.trainer_import import Request
    from assay.lab.run.trainer_import import import_run as take_over
    from assay.pages.live_display import progress as shown_progress
    from assay.pages.run_page.page import write_report
    from assay.pages.words import visible, words
    from assay.trainers.register import TRAINERS

    words(lang)
    look_up(TRAINERS, from_, "trainer")
    request = Request(from_, folder, name, stage, model, task, config, log)
    with shown_progress() as observer:
        made = take_over(root, request, observer)
    page = write_report(made.run, lang)
    count = f"{made.steps:,} steps, {len(made.checkpoints)} checkpoints"
    shown = [f"{made.run}: {made.stage}, {count}, from {folder}"]
    why = "is not whole, or lies inside a round: left out"
    warnings = [f"{each} {why}" for each in made.left_out]
    shown += ["unknown: " + ", ".join(made.unknown)] if made.unknown else []
    shown += [f"differs: {key}: {what}" for key, what in made.differences.items()]
    last = f"{made.run}@{made.stage}.last"
    if made.unasked:
        shown.append(f"not asked, as nothing trains any more: {', '.join(made.unasked)}")
    if made.evaluations:
        shown.append(f"next: assay resume {made.run.name}: measures {', '.join(made.evaluations)}")
    elif made.checkpoints:
        shown.append(f"next: assay eval {last} --benchmark NAME")
    shown += [f"page: {page}"]
    result = {"run": made.run, "stage": made.stage, "steps": made.steps, "unknown": made.unknown}
    result |= {"checkpoints": made.checkpoints, "differences": made.differences, "page": page}
    result |= {"evaluations": made.evaluations, "unasked": made.unasked}
    return Outcome(result, [visible(line) for line in shown], warnings=warnings)
