"""`assay convert IN OUT --to FORMAT`: converts a data file, with one split for all formats."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.cli.output import Outcome

if TYPE_CHECKING:  # readers load pyarrow, which help must do without
    from assay.data.formats.convert_rows import Converted


class Expand(StrEnum):
    """How one conversation becomes rows."""

    each_turn = "each_turn"
    last_call = "last_call"


class Undeclared(StrEnum):
    """How rows with calls that their tools do not describe are treated."""

    keep = "keep"
    drop = "drop"


def convert(
    root: Path,
    source: Annotated[Path, typer.Argument(metavar="IN", help="The file to read.")],
    target: Annotated[
        Path,
        typer.Argument(
            metavar="OUT", help="The file to write; a folder with --split or several --to."
        ),
    ],
    to: Annotated[
        list[str], typer.Option(help="verl, swift, trl or messages; may be given twice.")
    ],
    from_: Annotated[
        str | None, typer.Option("--from", help="The format of IN; else it is recognised.")
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE|ROWS",
            help="What goes to test.*, the rest to train.*: 0.1 of the conversations, or 60 rows.",
        ),
    ] = None,
    expand: Annotated[
        Expand | None,
        typer.Option(help="One row for each assistant turn, or the conversation to its last call."),
    ] = None,
    undeclared_calls: Annotated[
        Undeclared, typer.Option(help="Rows with calls that no tool describes.")
    ] = Undeclared.keep,
) -> Outcome:
    """Convert conversations between formats; says what was left out and what a format loses."""
    from assay.data.formats.convert_rows import Wanted
    from assay.data.formats.convert_rows import convert as make

    wanted = Wanted(
        to=tuple(to),
        format=from_,
        expand=expand.value if expand else None,
        keep_undeclared=undeclared_calls is Undeclared.keep,
        dev=None if split is None else dev_side(split),
    )
    made = make(source, target, wanted)
    said = " (recognised)" if from_ is None else ""
    return Outcome(made, [f"{source}: {made.format}{said}", *shown(made)])


def dev_side(text: str) -> float | int:
    """The value of `--split`: an integer is a number of rows. Raises InputError."""
    from assay.data.splits import DEV_FIX, dev_problem
    from assay.errors import InputError

    try:
        dev = int(text) if text.strip().isdecimal() else float(text)
    except ValueError:
        raise InputError(f"{text!r} is no number", field="--split", fix=DEV_FIX) from None
    if problem := dev_problem(dev):
        raise InputError(problem, field="--split", fix=DEV_FIX)
    return dev


def shown(made: "Converted") -> list[str]:
    """One line for each file, and one for each thing to know about it."""
    from assay.report.words import visible

    lines = [
        f"{file}: {count:,} rows of {made.conversations[file]:,} conversations"
        for file, count in made.rows.items()
    ]
    lines += [f"left out: {count:,}: {reason}" for reason, count in made.dropped.items()]
    lines += [f"note: {count:,}: {words}" for words, count in made.remarks.items()]
    for file, losses in made.losses.items():
        lines += [f"{file} loses, {count:,} times: {loss}" for loss, count in losses.items()]
    return [visible(line) for line in lines]
