"""`assay replay RUN --step K --set reward=NAME`: judges a stored step again under other settings.

Samples, trains and writes nothing.
"""

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import RenderableType
from rich.table import Table

from assay.cli.output import Outcome, taken
from assay.cli.run import RunName

if TYPE_CHECKING:  # a replay loads torch, which help must do without
    from assay.lab.replay import Replay, Side

SHOWN = 20
"""Changed samples that the terminal lists; `--json` has all."""


def replay(
    root: Path,
    run: RunName,
    step: Annotated[int, typer.Option(min=1)],
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE")] = None,
    stage: str | None = None,
) -> Outcome:
    """Judge a step's stored completions again.

    Nothing is sampled or trained.

    step: The step whose completions are judged again.
    set_: Another reward, algorithm, advantage, ... of the stage; may be repeated.
    stage: The stage, where several sample.
    """
    from assay.lab.replay import replay as judge_again
    from assay.pages.live_display import PlainProgress
    from assay.runs.run_names import find_run, parse_run_name

    directory = find_run(root, parse_run_name(run))
    done = judge_again(directory, step, set_ or (), stage=stage, observer=PlainProgress())
    result = {
        **taken(done, "run", "stage", "step", "settings", "samples"),
        "proof": asdict(done.proof),
        "reproduced": done.proof.exact,
        "before": figures(done.before),
        "after": figures(done.after),
    }
    return Outcome(result, shown(done), findings=done.findings)


def figures(side: "Side") -> dict[str, Any]:
    """What the update of one side is made of."""
    known = [reward.value for reward in side.rewards if reward.value is not None]
    return {
        "rewards": len(known),
        "mean reward": sum(known) / len(known) if known else None,
        "groups": side.signal.groups,
        "groups with signal": side.signal.signal_groups,
        "groups with a positive": side.signal.positive_groups,
        "completions drawn": side.drawn,
        "prompts trained on": side.prompts,
        "tokens trained on": side.tokens,
    }


def shown(done: "Replay") -> list[RenderableType]:
    """The replay for people."""
    title = f"{done.run}, step {done.step} of {done.stage}"
    changes = [f"  {c.path}: {c.control} -> {c.other}" for c in done.settings]
    proof, view = "", Table("update", "before", "after")
    if done.proof.exact:
        what = f"rewards and advantages of {done.proof.samples} samples"
        proof = f"self-check: the recorded {what} are reproduced exactly\n"
    after = figures(done.after)
    for name, value in figures(done.before).items():
        view.add_row(name, number(value), number(after[name]))
    counts = Counter(sample.turn for sample in done.samples)
    told = (
        f"of {len(done.samples)} samples {counts['flipped']} flip the sign of their advantage, "
        f"{counts['raised']} rise from 0, {counts['silenced']} fall to 0, {counts['same']} keep "
        f"their sign, {counts['silent']} stay 0, {counts['unknown']} are not known on both sides"
    )
    head = "\n".join([title, *(changes or ["  nothing set: the step as it was"])])
    return [head, proof, view, "", told, *changed_samples(done)]


def changed_samples(done: "Replay") -> list[RenderableType]:
    """Samples whose reward or advantage is another, by their `assay report` addresses."""
    from assay.pages.words import visible

    view = Table("assay report", "reward", "after", "advantage", "after")
    rows = [
        (x.id, (x.reward_before, x.reward_after, x.advantage_before, x.advantage_after))
        for x in done.samples
    ]
    changed = [(name, v) for name, v in rows if v[0] != v[1] or v[2] != v[3]]
    for name, values in changed[:SHOWN]:
        view.add_row(visible(name), *map(number, values))
    view.columns[0].overflow = "fold"
    more = len(changed) - SHOWN
    return [view, *([f"{more} more change; --json has all"] if more > 0 else [])] if changed else []


def number(value: float | None) -> str:
    """Four digits; a dash for what is not known."""
    if isinstance(value, int):
        return str(value)
    return "–" if value is None else f"{value:.4g}"
