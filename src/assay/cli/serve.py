"""`assay serve TARGET`: serves a checkpoint with an OpenAI-compatible API."""

from pathlib import Path
from typing import Annotated

import typer

from assay.cli.output import Outcome, run_names
from assay.pages.safe_console import tell


def serve(
    root: Path,
    target: Annotated[
        str,
        typer.Argument(
            help="NAME@CHECKPOINT of a run, or a model such as OWNER/NAME or path:DIR.",
            autocompletion=run_names,
        ),
    ],
    host: Annotated[
        str, typer.Option(help="The address to listen on; others than loopback need a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8000,
    token_file: Annotated[
        Path | None, typer.Option(help="Holds the clients' token; else ASSAY_SERVE_TOKEN.")
    ] = None,
    rendering: Annotated[str, typer.Option(help="How chats become text.")] = "auto",
    name: Annotated[
        str | None, typer.Option(help="The model's name for clients; else the target.")
    ] = None,
) -> Outcome:
    """Serve a checkpoint to OpenAI clients until Ctrl-C."""
    from assay.serve.server import serve as serve_model

    done = serve_model(
        root,
        target,
        host=host,
        port=port,
        token_file=token_file,
        rendering=rendering,
        name=name,
        note=tell,
    )
    words = (
        f"served {done['model']}: {done['requests']} requests, {done['refused']} refused, "
        f"{done['failed']} failed, {done['prompt_tokens']} prompt tokens, "
        f"{done['completion_tokens']} completion tokens"
    )
    return Outcome(done, [words])
