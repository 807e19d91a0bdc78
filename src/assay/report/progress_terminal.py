"""The progress of a run in the terminal: the same sections as on the page, as rich renderables.

Prints nothing itself. Text from files is made safe where the sections are made.

Follows a run from outside: what it looks like now, again whenever something has changed.

Reads the records only, so that watching disturbs nothing. Drawing on the screen is the command
line's part.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from assay.lab.monitor.progress import Progress, progress
from assay.report.progress_content import Section, progress_section
from assay.report.words import visible, words
from assay.runs.run_directory import RunDirectory
from assay.runs.status import Status, read_status

STYLES = {"error": "bold red", "warning": "yellow", "note": "bold"}
STATES = {"better": "green", "worse": "red", "undecided": "yellow", "": "dim"}


def progress_view(found: Progress, lang: str = "en") -> RenderableType:
    """Changes, findings, forecasts, milestones, guards and the gate; the table comes last, because
    it is what a small terminal may cut.
    """
    w = words(lang)
    section = progress_section(found, w)
    parts: list[RenderableType] = [
        Text(section["title"], "bold"),
        Text(section["about"], "dim"),
        *(Text(f"- {line}") for line in section["changes"]),
    ]
    for finding in section["findings"]:
        new = f" ({w('progress.new')})" if finding["new"] else ""
        style = STYLES[finding["kind"]]
        parts.append(Text.assemble((finding["severity"], style), f"{new}: {finding['what']}"))
        parts.append(Text(f"    {finding['evidence']}", "dim"))
        parts.append(Text(f"    {w('progress.advice')}: {finding['fix']}"))
    parts += [Text(line) for line in section["forecasts"]]
    for each in section["milestones"]:
        about = f" ({each['about']})" if each["about"] else ""
        line = Text.assemble((each["state"], STATES[each["kind"]]), " ", (each["name"], "bold"))
        parts.append(line.append(f"{about}: {each['expected']}. {each['value']}".rstrip(". ")))
    for each in section["guards"]:
        line = Text.assemble((each["state"], STATES[each["kind"]]), " ", (each["name"], "bold"))
        parts.append(line.append(f": {each['condition']}"))
    if section["promotion"]:
        parts.append(Text(section["promotion"]))
    if section["stopped"]:
        parts.append(Text(section["stopped"], "bold red"))
    return Group(*parts, metric_table(section, lang))


def metric_table(section: Section, lang: str) -> Table:
    """The metrics at both steps, with change and trend."""
    w = words(lang)
    titles = [w("progress.metric"), section["first"], section["last"]]
    titles += [w("progress.change"), w("progress.trend")]
    table = Table(*titles, box=None, header_style="bold")
    for row in section["rows"]:
        style = "bold" if row["moved"] else ""
        cells = (row["before"], row["after"], row["change"], row["trend"])
        table.add_row(Text(row["label"], style), *map(Text, cells))
    return table


@dataclass(frozen=True)
class Seen:
    """A run at one moment."""

    run: RunDirectory
    status: Status
    records: int
    """Finished evaluation records."""
    progress: Progress | None
    """None before the first step."""

    @property
    def ended(self) -> bool:
        """Whether the run is no longer at work."""
        return self.status.status != "running"


def follow(run: RunDirectory, every: float, sleep: Callable[[float], None]) -> Iterator[Seen]:
    """The run now, and again at every change until it has ended; looks every `every` seconds."""
    last: tuple[object, ...] = ()
    while True:
        status, records = read_status(run.path), count_records(run)
        now = (status, records)
        if now != last:
            last = now
            yield Seen(run, status, records, progress(run))
        if status.status != "running":
            return
        sleep(every)


def count_records(run: RunDirectory) -> int:
    """Finished evaluation records of a run."""
    return sum(not file.name.startswith(".") for file in run.evaluations.glob("*/*.parquet"))


def headline(seen: Seen, lang: str = "en") -> str:
    """Where the run is, in one line."""
    w, status = words(lang), seen.status
    key = "watch.step" if status.stage else "watch.begins"
    planned = seen.progress.planned if seen.progress else None
    line = w(
        key,
        run=seen.run,
        status=w(f"status.{status.status}"),
        stage=status.stage,
        step=status.step,
        planned=planned or "?",
        records=seen.records,
    )
    return line + (f": {visible(status.message)}" if status.message else "")


def watch_view(seen: Seen, lang: str = "en") -> RenderableType:
    """The run as it looks now."""
    line = Text(headline(seen, lang), "bold")
    return Group(line, progress_view(seen.progress, lang)) if seen.progress else line
