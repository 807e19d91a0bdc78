"""`assay plan`: computes the items, repeats and seeds that a wanted difference needs."""

from pathlib import Path
from typing import Annotated

import typer

from assay.cli.output import Outcome, run_names


def plan(
    root: Path,
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN RUN]",
            help="A pilot: NAME[@CHECKPOINT] twice, the control first; all seeds of a bare NAME.",
            autocompletion=run_names,
        ),
    ] = None,
    difference: Annotated[
        float, typer.Option(metavar="POINTS", help="The difference that is to be seen, in points.")
    ] = 3.0,
    on: Annotated[
        str | None, typer.Option(help="Evaluation of the pilot; else the first that both have.")
    ] = None,
    discordance: Annotated[
        float | None,
        typer.Option(metavar="SHARE", help="Without a pilot: the share of items that change."),
    ] = None,
    score: Annotated[
        float | None,
        typer.Option(metavar="SHARE", help="Without a pilot: the score of both arms, about."),
    ] = None,
    arms: Annotated[int, typer.Option(help="Arms in all, the control among them.")] = 2,
    seeds: Annotated[int, typer.Option(help="The most trainings of an arm to look at.")] = 1,
    repeats: Annotated[int, typer.Option(help="The most repeats to look at.")] = 1,
    power: Annotated[float, typer.Option(help="The chance of seeing the difference.")] = 0.8,
    lang: Annotated[str, typer.Option(help="Language: en or zh.")] = "en",
) -> Outcome:
    """Plan items, repeats and seeds so that a difference is seen, from a pilot or typed numbers."""
    from assay.compare.pilot_runs import Wish, designs, pilot, typed
    from assay.judge.sample_size import PlanError
    from assay.pages.command_tables.sample_size_table import plan_blocks, plan_result

    if runs and (discordance is not None or score is not None):
        problem = "a pilot and typed numbers exclude each other"
        raise PlanError(problem, fix="leave out the runs, or --discordance and --score")
    found = pilot(root, runs, on) if runs else typed(discordance, score)
    wish = Wish(difference / 100, power, arms, seeds, repeats)
    planned = designs(found, wish)
    shown = plan_blocks(found, wish, planned, lang)
    return Outcome(plan_result(found, wish, planned), shown, lang=lang)
