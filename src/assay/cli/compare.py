"""`assay compare CONTROL RUN...`: checkpoints of several runs, item by item, or not at all."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table as RichTable

from assay.cli.completion import run_names
from assay.cli.output import Outcome

if TYPE_CHECKING:  # records load pyarrow, which help must do without
    from assay.lab.compare import Arm, Table


def compare(
    root: Path,
    control: Annotated[
        str, typer.Argument(help="NAME[@CHECKPOINT] to compare with.", autocompletion=run_names)
    ],
    runs: Annotated[
        list[str], typer.Argument(help="One or more of the same.", autocompletion=run_names)
    ],
    on: Annotated[
        str | None, typer.Option(help="Evaluation or benchmark; else the first that all have.")
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(metavar="PATH", help="Accept an undeclared difference; may be repeated."),
    ] = None,
) -> Outcome:
    """Compare runs on the same items, and refuse what is not fair."""
    from assay.cli.results import table_result
    from assay.lab.compare import compare_arms

    arms = [arm(root, text) for text in (control, *runs)]
    table = compare_arms(arms[0], arms[1:], on=on, allow=allow or ())
    return Outcome(table_result(table), [rendered(table), *marks(table)])


def rendered(table: "Table") -> RichTable:
    """Scores of all checkpoints, and what the comparison with the control says."""
    title = f"{table.evaluation.name} ({table.evaluation.benchmark})"
    view = RichTable("checkpoint", "score", "interval", "items", "against the first", title=title)
    for line in table.lines:
        said = line.to_control.explanation() if line.to_control else "control"
        size = f"{line.items} x {line.repeats}" if line.repeats > 1 else str(line.items)
        interval = f"{line.interval.low:.1%} to {line.interval.high:.1%}"
        view.add_row(line.name, f"{line.score:.1%}", interval, size, said)
    return view


def marks(table: "Table") -> list[str]:
    """Everything else in which the runs differ, with what it counts as."""
    return [f"{d.kind}: {d.path}: {d.control} -> {d.other}" for d in table.differences]


def arm(root: Path, text: str) -> "Arm":
    """A run and the checkpoint of it that a name means."""
    from assay.lab.compare import Arm
    from assay.lab.run_names import find_run, parse_run_name, resolve_checkpoint
    from assay.lab.spec.references import checkpoint_name

    reference = parse_run_name(text)
    run = find_run(root, reference)
    if reference.checkpoint is None:
        return Arm(run)
    return Arm(run, checkpoint_name(resolve_checkpoint(run, reference.checkpoint)))
