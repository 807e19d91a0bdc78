"""A run in a terminal: its results, and the last lines of a command. Nothing is printed here."""

import io
from collections.abc import Sequence

from assay.errors import AssayError
from assay.pages import content, story
from assay.pages.facts import RunFacts, gather
from assay.pages.page import Block, Line, Mark, Text, parts
from assay.pages.provenance import marks
from assay.pages.run_page import page_of, sections
from assay.pages.safe_console import SafeConsole
from assay.pages.terminal import blocks_shown
from assay.pages.words import Words, score_text, visible, worded, words
from assay.runs.run_directory import RunDirectory, read_status

IN_TERMINAL = ("results", "rounds", "lineage", "outcomes", "others", "generation", "examples")
IN_TERMINAL += ("health",)


def final_blocks(run: RunDirectory, lang: str = "en") -> list[Block]:
    """What a terminal shows of a run's page. Raises what `gather` and reading the records raise."""
    facts, w = gather(run), words(lang)
    marked = [Text(mark, "warning") for mark in marks(facts, w)]
    nothing = [] if facts.main else [Text(content.nothing_measured(facts.main, w))]
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
        lines = [f"{run}{w.colon}{outcome}{w.semicolon}{_short(run, w)}" for run, outcome in ended]
        first = ended[0][0]
        pages = first.path.parent / "*" / page_of(first, w.lang).name
        return [
            *_cropped(lines, MOST_RUNS, w),
            Text(w("terminal.next", command=f"assay compare CONTROL {first.name}"), fit="whole"),
            Text(w("terminal.all", command=f"assay report {first} --full"), fit="whole"),
            Text(w("terminal.pages", files=pages), fit="whole"),
        ]
    ((run, outcome),) = ended
    facts = gather(run)
    name = story.shortest_name(run)
    warned = [Mark(mark, "warning") for mark in marks(facts, w)]
    return [
        Text(f"{run}{w.colon}{outcome}"),
        *content.headline_blocks(facts, w),
        *_cropped(warned, MOST_MARKS, w),
        *_cropped(_looks(facts, w), MOST_LOOKS, w),
        Text(w("terminal.next", command=story.next_command(facts)), fit="whole"),
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


def _short(run: RunDirectory, w: Words) -> str:
    """The score of a run's best checkpoint, with its verdict against the control."""
    facts = gather(run)
    line = content.best_line(facts)
    if line is None:
        return content.nothing_measured(facts.main, w)
    worst = [w(f"severity.{each.severity}") for _, each in story.warned(facts, w)][:1]
    verdict = []
    if pairing := line.to_control or line.to_previous:
        comparison = pairing.comparison
        change = content.change_text(comparison.difference, comparison.interval, w)
        verdict = [f"{w(f'verdict_name.{comparison.verdict}')} {change}"]
    return w.comma.join([score_text(line.score, line.interval), *verdict, *worst])


def _looks(facts: RunFacts, w: Words) -> list[Line]:
    findings = [(place, worded(each, w)) for place, each in story.warned(facts, w)]
    return [
        (
            Mark(w(f"severity.{each.severity}"), each.severity),
            f"{w.colon}{place}{w.colon}{each.what}"
            + (w.within(each.evidence) if each.evidence else ""),
        )
        for place, each in findings
    ]


def _cropped(lines: Sequence[Line], most: int, w: Words) -> list[Block]:
    """The first of some lines, each cut at the terminal's edge, and how many there are beside."""
    shown = lines if len(lines) <= most else lines[: most - 1]
    more = [Mark(w("terminal.more", count=len(lines) - len(shown)), "soft")]
    kept = [*shown, *(more if len(shown) < len(lines) else [])]
    return [Text(line, fit="cut") for line in kept]


def summary_line(run: RunDirectory, lang: str = "en") -> str:
    """The best checkpoint's score and its verdicts, as one plain line."""
    w = words(lang)
    lines = (
        line for block in content.headline_blocks(gather(run), w) for line in [parts(block.line)]
    )
    text = w.semicolon.join("".join(mark.text for mark in line) for line in lines)
    return f"{run}{w.colon}{text}"
