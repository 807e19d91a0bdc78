"""`assay replay RUN --step K --set reward=NAME`: judges a stored step again under other settings.

Samples, trains and writes nothing.
"""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import RenderableType
from rich.table import Table

from assay.cli.output import Outcome
from assay.cli.resume import RunName

if TYPE_CHECKING:  # a replay loads torch, which help must do without
    from assay.lab.replay.judge_again import Gradients, Replay, SampleChange, Spreads

SHOWN = 20
"""Changed samples that the terminal lists; `--json` has all."""


def replay(
    root: Path,
    run: RunName,
    step: Annotated[int, typer.Option(min=1, help="The step whose completions are judged again.")],
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Another reward, algorithm, advantage, ... of the stage; may be repeated.",
        ),
    ] = None,
    stage: Annotated[str | None, typer.Option(help="The stage, where several sample.")] = None,
    gradient: Annotated[
        bool, typer.Option("--gradient", help="Compare the gradients too (reads the weights).")
    ] = False,
) -> Outcome:
    """Judge a step's stored completions again.

    Nothing is sampled or trained.
    """
    from assay.lab.replay.judge_again import replay as judge_again
    from assay.pages.live_display import progress
    from assay.runs.run_names import find_run, parse_run_name

    found = find_run(root, parse_run_name(run))
    with progress() as observer:
        done = judge_again(
            found, step, set_ or (), stage=stage, gradient=gradient, observer=observer
        )
    result = {**asdict(done), "reproduced": done.proof.exact}
    return Outcome(result, shown(done), findings=done.findings)


def shown(done: "Replay") -> list[RenderableType]:
    """The replay for people."""
    from assay.pages.words import visible

    title = f"{done.run}, step {done.step} of {done.stage} ({done.method})"
    changes = [f"  {c.path}: {c.control} -> {c.other}" for c in done.settings]
    lines: list[RenderableType] = [
        visible("\n".join([title, *(changes or ["  nothing set: the step as it was"])])),
        proof_line(done),
        values_table("rewards", done.rewards),
        update_table(done),
        values_table(f"{done.pull}s", done.pulls),
        *turned(done),
    ]
    return lines if done.gradients is None else [*lines, *gradient_tables(done.gradients)]


def proof_line(done: "Replay") -> str:
    """The result of a self-check that passed."""
    proof = done.proof
    if not proof.exact:
        return ""
    what = "rewards" if proof.unasked or done.pull != "advantage" else "rewards and advantages"
    return f"self-check: the recorded {what} of {proof.samples} samples are reproduced exactly\n"


def values_table(title: str, spreads: "Spreads") -> Table:
    """Count, mean, quartiles and the histogram of both sides."""
    view = Table(title, "before", "after", title_justify="left")
    before, after = spreads.before, spreads.after
    view.add_row("known", str(before.known), str(after.known))
    view.add_row("none (kept apart)", str(before.unknown), str(after.unknown))
    names = ("mean", "deviation", "low", "quarter", "median", "three_quarters", "high")
    for name in names:
        values = (number(getattr(side, name)) for side in (before, after))
        view.add_row(name.replace("_", " "), *values, end_section=name == names[-1])
    for bar in spreads.bins:
        ends = dict.fromkeys(f"{end:.6g}" for end in (bar.low, bar.high))
        view.add_row(" to ".join(ends), str(bar.before), str(bar.after))
    return view


def update_table(done: "Replay") -> Table:
    """The update of each side, as a table."""
    view = Table("update", "before", "after")
    both = (done.before, done.after)
    view.add_row("groups", *(str(u.signal.groups) for u in both))
    view.add_row(
        "groups with signal", *(f"{u.signal.signal_groups} ({u.signal_share:.1%})" for u in both)
    )
    view.add_row("groups with a positive", *(str(u.signal.positive_groups) for u in both))
    view.add_row("completions drawn", *(str(u.drawn) for u in both))
    view.add_row("prompts trained on", *(str(u.prompts) for u in both))
    view.add_row("tokens trained on", *(str(u.tokens) for u in both))
    return view


def turned(done: "Replay") -> list[RenderableType]:
    """Counts of samples by change of sign, and a table of those that flip."""
    counts = dict.fromkeys(("flipped", "raised", "silenced", "same", "silent", "unknown"), 0)
    for sample in done.samples:
        counts[sample.turn] += 1
    said = (
        f"of {len(done.samples)} samples {counts['flipped']} flip their sign, "
        f"{counts['raised']} rise from 0, {counts['silenced']} fall to 0, {counts['same']} keep "
        f"their sign, {counts['silent']} stay 0, {counts['unknown']} are not known on both sides"
    )
    flips = [sample for sample in done.samples if sample.turn == "flipped"]
    if not flips:
        return ["", said]
    more = [f"{len(flips) - SHOWN} more flip; --json has all"] if len(flips) > SHOWN else []
    return ["", said, flip_table(flips[:SHOWN], done.pull), *more]


def flip_table(flips: "list[SampleChange]", pull: str) -> Table:
    """Samples whose sign flips, by their `assay report` addresses."""
    from assay.pages.words import visible

    view = Table("assay report", "reward", "after", pull, "after", title="sign flips")
    for flip in flips:
        values = (flip.reward_before, flip.reward_after, flip.pull_before, flip.pull_after)
        view.add_row(visible(flip.id), *map(number, values))
    view.columns[0].overflow = "fold"
    return view


def gradient_tables(found: "Gradients") -> list[RenderableType]:
    """Where the gradients were taken, and the angle between them, block by block."""
    weights = found.weights
    where = "the weights that sampled the step" if weights.exact else "the nearest stored before it"
    said = f"gradients at {weights.checkpoint}, {where}"
    if found.recorded_norm is not None:
        said += f"; the run recorded a norm of {found.recorded_norm:.6g}"
    if found.rollout_gap is not None:
        said += f"; log-probs differ from the recorded ones by {found.rollout_gap:.2g} on average"
    view = Table("gradient", "cosine", "norm before", "norm after")
    for part in (found.directions.whole, *found.directions.blocks):
        cosine = "–" if part.cosine is None else f"{part.cosine:+.6f}"
        end = part is found.directions.whole
        view.add_row(part.block, cosine, f"{part.before:.6g}", f"{part.after:.6g}", end_section=end)
    return ["", said, view]


def number(value: float | None) -> str:
    """Four digits; a dash for what is not known."""
    return "–" if value is None else f"{value:.4g}"
