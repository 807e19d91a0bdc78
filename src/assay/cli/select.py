"""`assay select RUN --by RULE --stage NAME --to NAME`: chooses rows by what a run recorded of them.

Samples and trains nothing; writes one file that `take` of a data set reads.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import RenderableType
from rich.table import Table

from assay.cli.output import Outcome
from assay.cli.resume import RunName

if TYPE_CHECKING:  # scoring loads pyarrow, which help must do without
    from assay.lab.select.select_rows import Bin, Selected

By = Annotated[
    str,
    typer.Option(
        metavar="RULE",
        help="limr: rows that are learned as the others are; pass-rate: rows within a band.",
        autocompletion=lambda: ["limr", "pass-rate"],
    ),
]


def select(
    root: Path,
    run: RunName,
    by: By,
    to: Annotated[str, typer.Option(metavar="NAME", help="Writes selections/NAME.json.")],
    stage: Annotated[str | None, typer.Option(help="The stage whose samples count.")] = None,
    evaluation: Annotated[
        str | None, typer.Option(help="The evaluation whose record counts, with --checkpoint.")
    ] = None,
    checkpoint: Annotated[str | None, typer.Option(help="base, STAGE.last, STAGE.best ...")] = None,
    data: Annotated[
        str | None, typer.Option(metavar="NAME", help="The set, where the stage has a mixture.")
    ] = None,
    passes: Annotated[
        float | None,
        typer.Option(help="The smallest reward that is right; limr: the full one; pass-rate: 1."),
    ] = None,
    threshold: Annotated[float | None, typer.Option(help="limr: lowest score kept; 0.6.")] = None,
    steps_per_epoch: Annotated[
        int | None, typer.Option(min=1, help="limr: omitted, as the stage visited its rows.")
    ] = None,
    low: Annotated[float | None, typer.Option(help="pass-rate: lowest rate kept; 0.1.")] = None,
    high: Annotated[float | None, typer.Option(help="pass-rate: highest rate kept; 0.9.")] = None,
) -> Outcome:
    """Choose rows to train on by the answers that a run recorded; trains nothing."""
    from assay.lab.select.select_rows import Request, select_rows

    asked = (stage, evaluation, checkpoint, data, passes, threshold, steps_per_epoch, low, high)
    done = select_rows(root, Request(by, run, to, *asked))
    file = done.file.relative_to(root).as_posix()
    take = f'take = {{ selection = "{file}" }}'
    answers = answers_of(done)
    result = {"file": file, "take": take, **done.selection.provenance}
    result |= {"answers_each": answers, "histogram": done.bins}
    return Outcome(result, shown(done, answers, take), warnings=done.warnings)


def answers_of(done: "Selected") -> list[int]:
    """The fewest, the median (the lower of two) and the most answers that a score stands on."""
    counts = sorted(row.answers for row in done.selection.rows if row.score is not None)
    return [counts[0], counts[(len(counts) - 1) // 2], counts[-1]]


def shown(done: "Selected", answers: list[int], take: str) -> list[RenderableType]:
    """The selection for people."""
    selection = done.selection
    counts, data = selection.counts, selection.data["name"].partition(".")[0]
    what = "score" if selection.rule["by"] == "limr" else "rate"
    view = Table(what, "rows", "kept")
    for each in done.bins:
        view.add_row(range_of(each), str(each.rows), str(each.kept))
    fewest, median, most = answers
    each = str(fewest) if fewest == most else f"{fewest} to {most} (median {median})"
    lines = [f"{why}: {count}" for why, count in counts["dropped"].items()]
    return [
        selection.origin,
        view,
        f"kept {counts['kept']} of {counts['scored']} rows; each {what} stands on {each} answers",
        *(f"dropped, {line}" for line in lines),
        "",
        f"written: {done.file}",
        f"to train on it, write in [data.{data}]:",
        f"  {take}",
        f"or add to assay run: --set '{'data.' + data}.{take}'",
    ]


def range_of(each: "Bin") -> str:
    """The scores of a bin in words."""
    if each.low is None:
        return f"below {each.high:g}"
    return f"{each.low:g}" if each.high is None else f"{each.low:g} to below {each.high:g}"
