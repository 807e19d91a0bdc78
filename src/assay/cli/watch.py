"""`assay watch RUN`: shows the progress of a run until it ends. Only reads the run's records."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.cli.output import Outcome
from assay.cli.resume import RunName
from assay.pages.safe_console import console, tell

if TYPE_CHECKING:
    from assay.pages.run_page.terminal import Seen


def watch(
    root: Path,
    run: RunName,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between looks.")] = 2.0,
    lang: Annotated[str, typer.Option(help="Language: en or zh.")] = "en",
) -> Outcome:
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
