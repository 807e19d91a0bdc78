"""`assay resume RUN` goes on with a run that stopped; `assay report RUN --watch` follows one."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.cli.output import Lang, Outcome, executing, run_names
from assay.cli.run import Despite, Full
from assay.pages.safe_console import console, tell

RunName = Annotated[
    str,
    typer.Argument(metavar="RUN", help="NAME, NAME/ID or NAME#SEED.", autocompletion=run_names),
]


def resume(
    root: Path,
    run: RunName,
    past_guard: Annotated[
        bool, typer.Option("--past-guard", help="Go on although a guard stopped the run.")
    ] = False,
    start_from: Annotated[
        str,
        typer.Option("--from", metavar="STAGE.step-N", help="Train again from this checkpoint."),
    ] = "",
    despite: Despite = None,
    log: Annotated[
        list[str] | None,
        typer.Option(metavar="SINK", help="Send metrics to wandb, trackio, mlflow or tensorboard."),
    ] = None,
    ranks: Annotated[
        int | None, typer.Option(min=1, help="So many processes go on; else as before.")
    ] = None,
    lang: Lang = "en",
    full: Full = False,
) -> Outcome:
    """Continue a run from its last, or an earlier, checkpoint."""
    from assay.cli.results import run_result, runs_shown
    from assay.engines.ranks import follows
    from assay.lab.run.ranks import follow, leading
    from assay.library.actions import open_run
    from assay.library.actions import resume as resume_run

    if follows():
        follow()
        return Outcome({})
    found = open_run(run, root=root, lang=lang)
    with executing(root, found.name), leading():
        made = resume_run(
            found,
            root=root,
            past_guard=past_guard,
            start_from=start_from,
            despite=despite,
            log=log or (),
            ranks=ranks,
            lang=lang,
        )
        shown = runs_shown([made], [WORDS[made.did]], full)
        return Outcome(run_result(made), shown, lang=lang)


WORDS = {
    "measured": "was finished; measured on what it lacked",
    "resumed": "resumed and finished",
    "page written": "was finished; its page is written now",
}


if TYPE_CHECKING:
    from assay.pages.run_page.terminal import Seen


def watched(root: Path, run: str, every: float, lang: str) -> Outcome:
    """Watch a run until it ends; Ctrl-C stops watching, not the run."""
    import time

    from assay.cli.results import progress_result, run_identity
    from assay.pages.run_page.terminal import follow, headline, watch_blocks
    from assay.runs.run_names import find_run, parse_run_name

    found = find_run(root, parse_run_name(run))
    seen: Seen | None = None
    with screen(lang) as show:
        try:
            for seen in follow(found, every, time.sleep):
                show(seen)
        except KeyboardInterrupt:
            said = [f"stopped watching {found}; the run goes on"]
            return Outcome({**run_identity(found), "ended": False}, said)
    assert seen is not None, "a run is always seen once"
    told = progress_result(seen.progress, lang) if seen.progress else None
    result = {**run_identity(found), "ended": True, "progress": told}
    code = 0 if seen.status.status == "finished" else 1
    shown = [*watch_blocks(seen, lang), headline(seen, lang)]
    return Outcome(result, shown, exit_code=code, lang=lang)


@contextmanager
def screen(lang: str) -> Iterator[Callable[["Seen"], None]]:
    """A function that shows what was seen on stderr: in place on a terminal, else line by line."""
    from rich.console import Group
    from rich.live import Live

    from assay.pages.run_page.terminal import headline, watch_blocks
    from assay.pages.terminal import blocks_shown
    from assay.pages.words import words

    out = console(sys.stderr)
    if not out.is_terminal:
        yield lambda seen: tell(headline(seen, lang))
        return
    with Live(console=out, refresh_per_second=4, transient=True) as live:
        yield lambda seen: live.update(
            Group(*blocks_shown(watch_blocks(seen, lang), words(lang))), refresh=True
        )
