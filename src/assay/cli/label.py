"""`assay label`: draws answers for people to label, and holds a judge to the labels."""

from pathlib import Path
from typing import Annotated

import typer

from assay.cli.compare import On, Runs
from assay.cli.output import Outcome


def label(
    root: Path,
    runs: Runs,
    labels: Annotated[Path, typer.Option(metavar="FILE", help="The labels, JSON lines.")],
    on: On = None,
    items: Annotated[
        int | None,
        typer.Option(min=1, help="Write the answers to so many items into FILE, for people."),
    ] = None,
) -> Outcome:
    """Draw answers of runs for people to label; without --items, hold the runs' judge to them."""
    from assay.lab.run.label_answers import draw_answers, measure_labels
    from assay.pages.live_display import progress

    with progress() as observer:
        evaluation = on[0] if on else None
        if items is not None:
            drawn = draw_answers(root, runs, evaluation, labels, items, observer)
            said = f"{drawn.file}: {drawn.added} answers to {drawn.items} items added"
            kept = f", {drawn.kept} lines kept" if drawn.kept else ""
            fix = 'fill in "label", then repeat this without --items'
            return Outcome(drawn, [said + kept, fix])
        found = measure_labels(root, runs, evaluation, labels, observer)
    from assay.cli.results import held_result
    from assay.compare.judge_trust import held, judge_findings
    from assay.pages.judge_content import held_blocks
    from assay.pages.words import worded, words

    w = words("en")
    judges = [held(each) for each in found]
    shown = [block for judge in judges for block in held_blocks(judge, w)]
    findings = [worded(each, w) for judge in judges for each in judge_findings(judge)]
    return Outcome({"judges": [held_result(each) for each in judges]}, shown, findings)
