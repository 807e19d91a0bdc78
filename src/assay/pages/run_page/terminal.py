"""Terminal views of a run and of a matrix, and the live view of `assay watch`.

Makes rich renderables and prints nothing. Control characters and square brackets of a model's text
are shown as text. Watching only reads the records.
"""

import io
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from assay.compare.table import Pairing
from assay.errors import AssayError
from assay.lab.monitor.progress import Progress, progress
from assay.pages import content
from assay.pages.comparison.benchmarks_content import run_benchmarks, section_shown
from assay.pages.content import STYLES
from assay.pages.examples import examples
from assay.pages.facts import RunFacts, gather
from assay.pages.generation_content import generation_shown, outcome_table, run_generation
from assay.pages.lineage.lineage_view import lineage_rows, lineage_tree
from assay.pages.progress.progress_terminal import progress_view
from assay.pages.provenance import marks
from assay.pages.result_tables import checkpoint_label
from assay.pages.run_page import story
from assay.pages.run_page.page import page_of
from assay.pages.safe_console import SafeConsole
from assay.pages.words import Words, number, score_text, visible, words
from assay.runs.run_directory import RunDirectory, runs_of
from assay.runs.status import Status, read_status


def final_table(run: RunDirectory, lang: str = "en") -> RenderableType:
    """Checkpoints of the main evaluation with intervals, differences and verdicts in words.

    Below it, the other measurements. Raises what `gather` and reading the records raise.
    """
    facts, w = gather(run), words(lang)
    marked: list[RenderableType] = [Text(said, "yellow") for said in marks(facts, w)]
    section = content.main_section(facts, w)
    if section is None:
        return Group(*marked, Text(w("page.nothing_measured")), *_lineage(run, w))
    said = [
        Text.assemble((sentence["what"], "bold"), w.colon, sentence["text"])
        for sentence in section["sentences"]
    ]
    parts: list[RenderableType] = [
        *marked,
        Text(section["about"], "dim"),
        _main_table(section, w),
        *said,
        *(Text(each) for each in section["picked"]),
    ]
    parts += [Text(said) for said in story.selection_section(facts, w)]
    parts += _lineage(run, w)
    for found in content.outcome_sections(facts, w)[:1]:
        parts.append(outcome_table(found["rows"], found["labels"], w))
    others = content.other_rows(facts, w)
    if others:
        parts.append(_others_table(others, w))
    parts += section_shown(run_benchmarks(facts, w), w)
    parts += generation_shown(run_generation(facts, w), w)
    return Group(*parts)


def _lineage(run: RunDirectory, w: Words) -> list[RenderableType]:
    """The tree of a run whose stages start from chosen checkpoints."""
    rows = lineage_rows(run, w)
    chosen = any(row.node.origin and row.node.origin.selection for row in rows)
    return [lineage_tree(rows, w)] if chosen else []


MOST_LINES = 15
"""Lines that the terminal ends with, at 80 columns or more."""
MOST_MARKS, MOST_LOOKS, MOST_RUNS = 2, 3, 10


def ending(ended: Sequence[tuple[RunDirectory, str]], lang: str = "en") -> list[RenderableType]:
    """The last lines of a command that ends with runs: verdict, what to look at, what to do next.

    At most MOST_LINES lines for runs, each with what was done to it; `final_table` has the rest.
    """
    w = words(lang)
    if len(ended) > 1:
        return _several_ended(ended, w)
    ((run, said),) = ended
    facts = gather(run)
    name = shortest_name(run)
    colon = w.colon
    return [
        Text(f"{run}{colon}{said}"),
        *_verdict_lines(facts, w),
        *_cropped([Text(mark, "yellow") for mark in marks(facts, w)], MOST_MARKS, name, w),
        *_cropped(_looks(facts, w), MOST_LOOKS, name, w),
        w("terminal.next", command=next_command(facts)),
        w("terminal.all", command=f"assay report {name} --full"),
        w("terminal.page", file=page_of(run, lang)),
    ]


def ended_text(run: RunDirectory, lang: str = "en") -> str:
    """The same of one run as plain text, for a notebook or a debugger; of a run that cannot be
    read, why."""
    console = SafeConsole(file=io.StringIO(), width=100, color_system=None)
    try:
        state = words(lang)(f"status.{read_status(run.path).status}")
        lines = ending([(run, state)], lang)
    except AssayError as error:
        return f"{run}: {visible(str(error))}"
    with console.capture() as captured:
        for line in lines:
            console.print(line, markup=False, highlight=False, soft_wrap=isinstance(line, str))
    return captured.get().rstrip()


def _several_ended(ended: Sequence[tuple[RunDirectory, str]], w: Words) -> list[RenderableType]:
    """A line for each run; then how to see each, and how to compare."""
    lines = [Text(f"{run}{w.colon}{said}{w.semicolon}{_short(run, w)}") for run, said in ended]
    name = ended[0][0].name
    return [
        *_cropped(lines, MOST_RUNS, name, w),
        w("terminal.next", command=f"assay compare CONTROL {name}"),
        w("terminal.all", command=f"assay report {ended[0][0]} --full"),
        w(
            "terminal.pages",
            files=ended[0][0].path.parent / "*" / page_of(ended[0][0], w.lang).name,
        ),
    ]


def _short(run: RunDirectory, w: Words) -> str:
    """The score of a run's best checkpoint, with its verdict against the control."""
    facts = gather(run)
    found = content.headline(facts, w)
    if found is None:
        return w("page.nothing_measured")
    worst = [finding["severity"] for finding in _warned(facts, w)][:1]
    verdicts = [f"{each['verdict']} {each['short']}" for each in found["against"][:1]]
    return w.comma.join([found["score"], *verdicts, *worst])


def _verdict_lines(facts: RunFacts, w: Words) -> list[RenderableType]:
    """The score of the best checkpoint, and its verdict against the control and its start."""
    found = content.headline(facts, w)
    if found is None:
        return [Text(w("page.nothing_measured"))]
    colon, semicolon = w.colon, w.semicolon
    score = Text.assemble(
        (found["score"], "bold"), f"{w('terminal.badge', badge=found['interval'])} {found['what']}"
    )
    unscored = [Text(found["abstained"], "yellow")] if found["abstained"] else []
    return [
        score,
        *unscored,
        *(
            Text.assemble(
                (each["verdict"], STYLES.get(each["kind"], "")),
                f"{colon}{each['what']}{colon}{each['difference']}",
                semicolon + each["detectable"] if each["detectable"] else "",
            )
            for each in found["against"]
        ),
    ]


def _warned(facts: RunFacts, w: Words) -> list[dict[str, str]]:
    """Errors and warnings about the run, errors first."""
    order = {"error": 0, "warning": 1}
    found = [each for each in story.finding_section(facts, w) if each["kind"] in order]
    return sorted(found, key=lambda each: order[each["kind"]])


def _looks(facts: RunFacts, w: Words) -> list[Text]:
    colon = w.colon
    styles = {"error": "bold red", "warning": "yellow"}
    return [
        Text.assemble(
            (each["severity"], styles[each["kind"]]), f"{colon}{each['stage']}{colon}{each['what']}"
        )
        for each in _warned(facts, w)
    ]


def _cropped(lines: list[Text], most: int, name: str, w: Words) -> list[RenderableType]:
    """The first of some lines, each cut at the terminal's edge, and how many there are beside."""
    shown = lines if len(lines) <= most else lines[: most - 1]
    more = [Text(w("terminal.more", count=len(lines) - len(shown)), "dim")]
    kept = [*shown, *(more if len(shown) < len(lines) else [])]
    for line in kept:
        line.no_wrap, line.overflow = True, "ellipsis"
    return [Group(*kept)] if kept else []


def shortest_name(run: RunDirectory) -> str:
    """What names the run in a command: its name alone, if it is the newest of that name."""
    return run.name if runs_of(run.root, run.name)[-1:] == [run] else str(run)


def next_command(facts: RunFacts) -> str:
    """The command that most users of such a result want next."""
    name = shortest_name(facts.run)
    unfinished = {"running": "watch", "interrupted": "resume", "failed": "resume"}
    if facts.status.status in unfinished:
        return f"assay {unfinished[facts.status.status]} {name}"
    stages = list(facts.experiment.stage)
    if not stages:
        return f"assay compare {name} RUN"
    found = content.headline(facts, words())
    if found is None:
        return f"assay eval {name}@{stages[-1]}.last --benchmark NAME"
    better = found["verdict"] == "better" and not _warned(facts, words())
    return f"assay export {name}@{found['checkpoint']} DIR" if better else f"assay improve {name}"


def example_panels(run: RunDirectory, lang: str = "en") -> RenderableType:
    """Three items before and after."""
    facts, w = gather(run), words(lang)
    table = facts.main.table if facts.main else None
    section = story.example_section(examples(facts, table) if table else None, w)
    return Group(*_example_lines(section, w)) if section else Text("")


def summary_line(run: RunDirectory, lang: str = "en") -> str:
    """The last checkpoint's score with interval, items and verdict, as one plain line."""
    facts, w = gather(run), words(lang)
    if facts.main is None or facts.main.table is None:
        return w("terminal.nothing", run=run)
    return _summary(facts, w)


def _summary(facts: RunFacts, w: Words) -> str:
    assert facts.main is not None and facts.main.table is not None
    table = facts.main.table
    line = table.lines[-1]
    values = {
        "label": checkpoint_label(line.name, w),
        "score": score_text(line.score, line.interval),
        "low": score_text(line.interval.low, line.interval),
        "high": score_text(line.interval.high, line.interval),
        "items": number(line.items),
        "benchmark": table.evaluation.benchmark,
    }
    pairings = [p for p in (line.to_control, line.to_previous) if p is not None]
    if not pairings:
        return w("terminal.summary_alone", **values)
    verdict = w.semicolon.join(_verdict(pairing, w) for pairing in pairings)
    return w("terminal.summary", **values, verdict=verdict)


def _verdict(pairing: Pairing, w: Words) -> str:
    view, what = content.pairing_view(pairing, w), content.sentence(pairing, w)["what"]
    assert view is not None
    said = (view["verdict"], view["difference"], view["detectable"])
    return f"{what}{w.colon}{w.comma.join(filter(None, said))}"


def _main_table(section: content.Section, w: Words) -> Table:
    titles = [w("table.checkpoint"), w("table.score"), w("table.interval"), w("table.items")]
    control = w("table.to_control", control=section["control"])
    table = Table(*titles, control, w("table.to_previous"), box=None, header_style="bold")
    for row in section["rows"]:
        label = Text(row["label"])
        for badge in row["badges"]:
            label.append(w("terminal.badge", badge=badge), "dim")
        if row["line"] is None:
            table.add_row(label, Text(w("table.not_run"), "dim"))
            continue
        size = " ".join(part for part in (row["size"], row["abstained"]) if part)
        cells = [_pairing_text(row[key], w) for key in ("to_control", "to_previous")]
        table.add_row(label, Text(row["score"], "bold"), Text(row["interval"]), Text(size), *cells)
    return table


def _pairing_text(view: dict[str, str] | None, w: Words) -> Text:
    if view is None:
        return Text("–", "dim")
    text = Text.assemble((view["verdict"], STYLES.get(view["kind"], "")), " ", view["short"])
    return text.append(w.semicolon + view["detectable"], "dim") if view["detectable"] else text


def _others_table(rows: list[content.Section], w: Words) -> Table:
    titles = ("evaluation", "checkpoint", "score", "interval", "items")
    table = Table(
        *(w(f"table.{title}") for title in titles),
        title=w("page.others"),
        title_justify="left",
        box=None,
        header_style="bold",
    )
    for row in rows:
        name = Text(row["evaluation"])
        if row["line"] is None:
            table.add_row(name, Text(row["label"]), Text(w("table.not_run"), "dim"))
        else:
            figures = (row["label"], row["score"], row["interval"], row["size"])
            table.add_row(name, *map(Text, figures))
    return table


BLANK_LINES = re.compile(r"\n\s*\n")
"""Several in a row: a weak model writes hundreds."""


def _example_lines(section: content.Section, w: Words) -> Iterator[RenderableType]:
    yield Text(w("page.examples"), "bold")
    if section["problem"]:
        yield Text(w("page.no_questions", why=visible(section["problem"])), "yellow")
    for example in section["shown"]:
        style = STYLES.get(example["badge"], "")
        yield Text.assemble("\n", (example["kind"], style), " ", (example["item"], "bold"))
        if example["question"]:
            yield Padding(Text(example["question"], "italic"), (0, 0, 0, 2))
        for answer in (example["before"], example["after"]):
            yield Padding(
                Text(f"{answer['title']}{w.colon}{answer['result']}", "dim"), (0, 0, 0, 2)
            )
            yield Padding(Text(BLANK_LINES.sub("\n\n", answer["text"])), (0, 0, 0, 4))


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


def watch_view(seen: Seen, lang: str = "en") -> RenderableType:
    """The view of a run at one moment."""
    line = Text(headline(seen, lang), "bold")
    return Group(line, progress_view(seen.progress, lang, short=True)) if seen.progress else line
