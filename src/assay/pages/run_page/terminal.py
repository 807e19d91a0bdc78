"""A run in a terminal: its results, the last lines of a command, and what follows it live.

Makes blocks and prints nothing. Watching only reads the records.
"""

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from assay.errors import AssayError, Finding
from assay.lab.monitor.progress import Progress, progress
from assay.pages import content
from assay.pages.facts import RunFacts, gather
from assay.pages.page import Block, Heading, Line, Mark, Text, parts
from assay.pages.progress.progress_content import progress_in_terminal
from assay.pages.provenance import marks
from assay.pages.run_page import story
from assay.pages.run_page.page import page_of, sections
from assay.pages.safe_console import SafeConsole
from assay.pages.terminal import blocks_shown
from assay.pages.words import Words, visible, worded, words
from assay.runs.run_directory import RunDirectory, runs_of
from assay.runs.status import Status, read_status

IN_TERMINAL = ("results", "lineage", "outcomes", "others", "benchmarks", "generation", "examples")


def final_blocks(run: RunDirectory, lang: str = "en") -> list[Block]:
    """What a terminal shows of a run's page. Raises what `gather` and reading the records raise."""
    facts, w = gather(run), words(lang)
    marked = [Text(said, "warning") for said in marks(facts, w)]
    nothing = [] if facts.main else [Text(w("page.nothing_measured"))]
    return [*marked, *nothing, *sections(facts, w, wanted=IN_TERMINAL)]


MOST_LINES = 15
"""Lines that the terminal ends with, at 80 columns or more."""
MOST_MARKS, MOST_LOOKS, MOST_RUNS = 2, 3, 10


def ending(ended: Sequence[tuple[RunDirectory, str]], lang: str = "en") -> list[Block]:
    """The last lines of a command that ends with runs: verdict, what to look at, what to do next.

    At most MOST_LINES lines for runs, each with what was done to it; `final_blocks` has the rest.
    """
    w = words(lang)
    if len(ended) > 1:
        return _several_ended(ended, w)
    ((run, said),) = ended
    facts = gather(run)
    name = shortest_name(run)
    warned = [Mark(mark, "warning") for mark in marks(facts, w)]
    return [
        Text(f"{run}{w.colon}{said}"),
        *_verdict_lines(facts, w),
        *_cropped(warned, MOST_MARKS, w),
        *_cropped(_looks(facts, w), MOST_LOOKS, w),
        Text(w("terminal.next", command=next_command(facts)), fit="whole"),
        Text(w("terminal.all", command=f"assay report {name} --full"), fit="whole"),
        Text(w("terminal.page", file=page_of(run, lang)), fit="whole"),
    ]


def ended_text(run: RunDirectory, lang: str = "en") -> str:
    """The same of one run as plain text, for a notebook or a debugger; of a run that cannot be
    read, why."""
    console = SafeConsole(file=io.StringIO(), width=100, color_system=None)
    try:
        state = words(lang)(f"status.{read_status(run.path).status}")
        blocks = ending([(run, state)], lang)
    except AssayError as error:
        return f"{run}: {visible(str(error))}"
    with console.capture() as captured:
        for line in blocks_shown(blocks, words(lang)):
            console.print(line, markup=False, highlight=False, soft_wrap=isinstance(line, str))
    return captured.get().rstrip()


def _several_ended(ended: Sequence[tuple[RunDirectory, str]], w: Words) -> list[Block]:
    """A line for each run; then how to see each, and how to compare."""
    lines = [f"{run}{w.colon}{said}{w.semicolon}{_short(run, w)}" for run, said in ended]
    first = ended[0][0]
    pages = first.path.parent / "*" / page_of(first, w.lang).name
    return [
        *_cropped(lines, MOST_RUNS, w),
        Text(w("terminal.next", command=f"assay compare CONTROL {first.name}"), fit="whole"),
        Text(w("terminal.all", command=f"assay report {first} --full"), fit="whole"),
        Text(w("terminal.pages", files=pages), fit="whole"),
    ]


def _short(run: RunDirectory, w: Words) -> str:
    """The score of a run's best checkpoint, with its verdict against the control."""
    facts = gather(run)
    found = content.headline(facts, w)
    if found is None:
        return w("page.nothing_measured")
    worst = [w(f"severity.{each.severity}") for _, each in _warned(facts, w)][:1]
    verdicts = [f"{each['verdict']} {each['short']}" for each in found["against"][:1]]
    return w.comma.join([found["score"], *verdicts, *worst])


def _verdict_lines(facts: RunFacts, w: Words) -> list[Text]:
    """The score of the best checkpoint, and its verdict against the control and its start."""
    found = content.headline(facts, w)
    if found is None:
        return [Text(w("page.nothing_measured"))]
    unscored = [Text(Mark(found["abstained"], "warning"))] if found["abstained"] else []
    return [
        Text((Mark(found["score"]), f"{w.within(found['interval'])} {found['what']}")),
        *unscored,
        *(Text(content.verdict_line(each, w)) for each in found["against"]),
    ]


def _warned(facts: RunFacts, w: Words) -> list[tuple[str, Finding]]:
    """Errors and warnings about the run with their places, errors first."""
    found = [each for each in story.placed_findings(facts, w) if each[1].severity != "note"]
    return sorted(found, key=lambda each: each[1].severity)


def _looks(facts: RunFacts, w: Words) -> list[Line]:
    found = [(place, worded(each, w)) for place, each in _warned(facts, w)]
    return [
        (
            Mark(w(f"severity.{each.severity}"), each.severity),
            f"{w.colon}{place}{w.colon}{each.what}{evidence_of(each, w)}",
        )
        for place, each in found
    ]


def evidence_of(found: Finding, w: Words) -> str:
    """The evidence in brackets, where there is some."""
    return w.within(found.evidence) if found.evidence else ""


def _cropped(lines: Sequence[Line], most: int, w: Words) -> list[Block]:
    """The first of some lines, each cut at the terminal's edge, and how many there are beside."""
    shown = lines if len(lines) <= most else lines[: most - 1]
    more = [Mark(w("terminal.more", count=len(lines) - len(shown)), "soft")]
    kept = [*shown, *(more if len(shown) < len(lines) else [])]
    return [Text(line, fit="cut") for line in kept]


def shortest_name(run: RunDirectory) -> str:
    """What names the run in a command: its name alone, if it is the newest of that name."""
    return run.name if runs_of(run.root, run.name)[-1:] == [run] else str(run)


def next_command(facts: RunFacts) -> str:
    """The command that most users of such a result want next."""
    name = shortest_name(facts.run)
    unfinished = {"running": "report {} --watch", "interrupted": "resume {}", "failed": "resume {}"}
    if facts.status.status in unfinished:
        return "assay " + unfinished[facts.status.status].format(name)
    stages = list(facts.experiment.stage)
    if not stages:
        return f"assay compare {name} RUN"
    found = content.headline(facts, words())
    if found is None:
        return f"assay eval {name}@{stages[-1]}.last --benchmark NAME"
    better = found["verdict"] == "better" and not _warned(facts, words())
    return (
        f"assay export {name}@{found['checkpoint']} DIR"
        if better
        else f"assay report {name} --full"
    )


def summary_line(run: RunDirectory, lang: str = "en") -> str:
    """The best checkpoint's score and its verdicts, as one plain line."""
    w = words(lang)
    lines = (line for block in _verdict_lines(gather(run), w) for line in [parts(block.line)])
    said = w.semicolon.join("".join(mark.text for mark in line) for line in lines)
    return f"{run}{w.colon}{said}"


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
        """Whether the run has ended."""
        return self.status.status != "running"


def follow(run: RunDirectory, every: float, sleep: Callable[[float], None]) -> Iterator[Seen]:
    """Yields the run now and at every change until it ends; polls every `every` seconds."""
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
    """The stage and step of the run, in one line."""
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
    return line + (f"{w.colon}{visible(status.message)}" if status.message else "")


def watch_blocks(seen: Seen, lang: str = "en") -> list[Block]:
    """The view of a run at one moment."""
    told = progress_in_terminal(seen.progress, words(lang), short=True) if seen.progress else []
    return [Heading(headline(seen, lang)), *told]
