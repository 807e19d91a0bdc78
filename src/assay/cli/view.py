"""`assay view`: the lab in a browser."""

from pathlib import Path
from typing import Annotated

import typer

from assay.cli.output import Lang, Outcome
from assay.pages.safe_console import tell


def view(
    root: Path,
    labs: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[LAB]...", help="The roots of labs; else the one of --lab."),
    ] = None,
    host: Annotated[
        str, typer.Option(help="The address to listen on; others than loopback need a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8010,
    token_file: Annotated[
        Path | None, typer.Option(help="Holds the readers' token; else ASSAY_SERVE_TOKEN.")
    ] = None,
    lang: Lang = "en",
) -> Outcome:
    """Show labs in a browser until Ctrl-C."""
    from assay.pages.words import words
    from assay.view.server import view as show

    words(lang)
    done = show(labs or [root], host=host, port=port, token_file=token_file, lang=lang, note=tell)
    return Outcome(done, [f"showed {', '.join(done['labs'])}"])
