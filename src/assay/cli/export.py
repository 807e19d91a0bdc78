"""`assay export RUN@CHECKPOINT DIR`: writes a checkpoint as a folder that other programs load."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from assay.cli.output import Outcome, run_names


class Dtype(StrEnum):
    """The number format of the weights."""

    bf16 = "bf16"
    fp32 = "fp32"


def export(
    root: Path,
    target: Annotated[
        str,
        typer.Argument(
            metavar="RUN@CHECKPOINT",
            help="NAME@STAGE.best, NAME@STAGE.last or NAME@STAGE.step-N.",
            autocompletion=run_names,
        ),
    ],
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The folder to make; an empty one may exist.")
    ],
    dtype: Annotated[
        Dtype | None,
        typer.Option(
            help="Number format of the weights; omitted: bf16, or that of a base that reads images."
        ),
    ] = None,
    gguf: Annotated[bool, typer.Option("--gguf", help="Write a GGUF file too.")] = False,
    push: Annotated[
        str | None,
        typer.Option(metavar="OWNER/NAME", help="Upload it as a new private repository."),
    ] = None,
    lang: Annotated[str, typer.Option(help="Language of the model card: en or zh.")] = "en",
) -> Outcome:
    """Export a checkpoint as one merged model with tokenizer, chat template and model card."""
    from assay.lab.run.merged_export import export as make
    from assay.models.hub import check_push
    from assay.models.hub import push as upload
    from assay.pages.live_display import progress as shown_progress
    from assay.pages.run_page.card import model_card
    from assay.pages.words import words

    words(lang)
    if push is not None:
        check_push(push)
    with shown_progress() as observer:
        made = make(
            root,
            target,
            folder,
            lambda e: model_card(e, lang),
            dtype=dtype and dtype.value,
            gguf=gguf,
            observer=observer,
        )
    shown = [f"{folder}: {made.run}@{made.checkpoint}, {made.dtype}, rendering {made.rendering!r}"]
    shown += [f"{folder / made.gguf}: for llama.cpp"] if made.gguf else []
    address = upload(folder, push) if push is not None else None
    shown += [f"pushed to {address}"] if address else []
    result = {"folder": folder, "checkpoint": f"{made.run}@{made.checkpoint}", "dtype": made.dtype}
    result |= {"rendering": made.rendering, "weights_sha256": made.weights_sha256}
    result |= {"gguf": folder / made.gguf if made.gguf else None, "pushed": address}
    return Outcome(result, shown)
