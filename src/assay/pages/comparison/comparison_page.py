"""The page of a comparison of runs and what a terminal shows of it.

Numbers come from the table of `compare.judged_table`, answers from the records that it names,
questions from the source of the items. Links to the records are relative, so that a lab's folder
can be moved. Nothing is judged here.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from assay.compare.table import Line as Scored
from assay.compare.table import Pairing
from assay.compare.table import Table as Compared
from assay.data.hashing import sha256_text
from assay.data.row import Row
from assay.errors import AssayError, InputError
from assay.judge.confounds import ABSENT, Confound
from assay.judge.verdict import Comparison
from assay.pages.charts import difference_bar, difference_scale, interval_bar
from assay.pages.content import (
    about_evaluation,
    abstained_text,
    interval_text,
    items_text,
    outcome_blocks,
    pairing_view,
    picked_sentences,
    sentence,
    sentence_line,
    shared_scale,
    size_text,
    verdict_line,
)
from assay.pages.examples import item_rows, question_blocks
from assay.pages.generation_content import generation_blocks
from assay.pages.judge_content import judge_blocks
from assay.pages.page import (
    Block,
    Bullets,
    Cell,
    Column,
    Facts,
    Findings,
    Folded,
    Heading,
    Line,
    Mark,
    Only,
    Page,
    Section,
    Table,
    Text,
)
from assay.pages.page import Row as TableRow
from assay.pages.result_tables import checkpoint_label
from assay.pages.words import (
    Words,
    difference_text,
    in_language,
    named_tests,
    number,
    percent,
    score_text,
    words,
)
from assay.pages.write_page import write_page
from assay.runs.history import answers_in

FOLDER = "comparisons"
LONGEST_NAME = 120
SHOWN = 2
"""Items of each kind that are shown with both answers."""
SHOWN_VALUE = 60
"""Characters of a setting that a table shows."""
QUIET = ("follows", "note")
"""Kinds of differences that only the page lists."""


def write_comparison(
    table: Compared, root: Path, page: Path | None = None, lang: str = "en"
) -> Path:
    """Write `page` (.html) and the same as .md beside it; returns the HTML page.

    Omitted, they lie under `comparisons/` in the lab's root, named after runs and evaluation, and
    the same comparison made again replaces them. Raises InputError for a language or a path
    that cannot be one.
    """
    w = words(lang)
    target = page_file(table, root, page, lang)
    with page_problem(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        return write_page(comparison_page(table, w, target.parent), target)


Door = Callable[[Sequence[Scored], str], str]
"""Where both answers to an item lie side by side: an address of the two lines and the item; ""
where there is none."""


def comparison_page(
    table: Compared, w: Words, folder: Path, door: Door = lambda sides, item: ""
) -> Page:
    """The whole page; links are relative to its `folder`, items lead through their `door`."""
    labels = line_labels(table, w)
    blocks: list[Block] = [
        Text(about_evaluation(table, w), "lead"),
        *(Text(_verdict_line(pairing, labels, w)) for pairing in _pairings(table)),
        *warned(table, w),
        *sections(table, w, folder, door),
    ]
    footer = w("compare.footer", version=version("assay-lab"))
    title = w("compare.title", evaluation=table.evaluation.name)
    return Page(w, title.removesuffix(" · Assay"), blocks, footer, title)


def warned(table: Compared, w: Words) -> list[Block]:
    """Accepted confounds and findings."""
    marked, findings = mark(table, w), (*table.left_out, *table.findings)
    found: list[Block] = [Text(marked, "warning")] if marked else []
    return [*found, *([Findings(findings)] if findings else [])]


def sections(
    table: Compared,
    w: Words,
    folder: Path | None = None,
    door: Door = lambda sides, item: "",
    wanted: Sequence[str] = (),
) -> list[Section]:
    """The sections that have something to say; those of some anchors where they are `wanted`."""
    labels, pairings = line_labels(table, w), _pairings(table)
    control = labels[table.control.name]
    parts: dict[str, tuple[str, Callable[[], Sequence[Block]]]] = {
        "scores": (w("compare.scores"), lambda: [score_table(table, w, folder)]),
        "differences": (
            w("compare.differences", control=control),
            lambda: _differences(table, pairings, labels, w),
        ),
        "generation": (w("generation.title"), lambda: generation_blocks([(table, labels)], w)),
        "tasks": (w("compare.tasks_title"), lambda: _tasks(table, w)),
        "judge": (w("judge.title"), lambda: judge_blocks(table, w)),
        "picked": (w("picked.title"), lambda: _picked(table, labels, w)),
        "outcomes": (w("page.errors"), lambda: _outcomes(table, labels, w)),
        "fairness": (w("compare.fairness"), lambda: _fairness(table, control, w)),
        "flips": (w("compare.flips"), lambda: _flips(table, pairings, labels, door, w)),
        "methods": (w("page.methods"), lambda: [Text(line) for line in _methods(pairings, w)]),
        "records": (
            w("compare.records"),
            lambda: _records(table, labels, folder, w) if folder else [],
        ),
    }
    found = ((anchor, *parts[anchor]) for anchor in wanted or parts)
    return [Section(anchor, title, made) for anchor, title, make in found if (made := make())]


IN_TERMINAL = ("scores", "differences", "generation", "tasks", "judge", "picked")
IN_TERMINAL += ("outcomes", "fairness")


def comparison_shown(table: Compared, lang: str = "en", flips: bool = False) -> list[Block]:
    """What a terminal shows of the page; with `flips` the address of every changed item."""
    w = words(lang)
    title = Heading(f"{table.evaluation.name} ({table.evaluation.benchmark})")
    changed = _changed_addresses(table, w) if flips else ()
    return [title, *sections(table, w, wanted=IN_TERMINAL), *changed]


def _pairings(table: Compared) -> list[Pairing]:
    return [line.to_control for line in table.lines if line.to_control is not None]


def line_labels(table: Compared, w: Words) -> dict[str, str]:
    """Short names of the lines: the run, its id where two runs share a name, the checkpoint.

    Runs of other tools keep the name that their file gives them.
    """
    split = {line.name: line.name.partition("@") for line in table.lines if line.address}
    names = [run.partition("/")[0] for run in {run for run, _, _ in split.values()}]
    labels = {line.name: line.name for line in table.lines}
    for name, (run, at, checkpoint) in split.items():
        short, _, id_ = run.partition("/")
        if names.count(short) > 1:
            short += "/" + id_.rpartition("-")[2]
        labels[name] = f"{short} · {checkpoint_label(checkpoint, w)}" if at else name
    return labels


def labelled_sentence(pairing: Pairing, labels: Mapping[str, str], w: Words) -> dict[str, str]:
    """A comparison in words, under the short names."""
    control, other = labels[pairing.control], labels[pairing.other]
    what = w("table.against", other=other, control=control)
    return {**sentence(pairing, w), "what": what}


def _verdict_line(pairing: Pairing, labels: Mapping[str, str], w: Words) -> Line:
    what = labelled_sentence(pairing, labels, w)["what"]
    return verdict_line({**(pairing_view(pairing, w) or {}), "what": what}, w)


def mark(table: Compared, w: Words) -> str:
    """The note on every table of a comparison with accepted confounds."""
    return w("compare.mark", allowed=w.listing.join(table.allowed)) if table.allowed else ""


def score_table(table: Compared, w: Words, folder: Path | None = None) -> Table:
    """The checkpoints with their scores, which lead to their records from a page in `folder`."""
    labels, scale = line_labels(table, w), shared_scale(table.lines)
    heads = [Column(w(f"compare.{name}"), right=True) for name in ("items", "repeats")]
    score = Column(w("table.score"), right=True)
    rows: list[TableRow] = []
    for line in table.lines:
        link = _link(line, folder) if folder else ""
        control = [] if line.to_control else [Mark(w("compare.control"), "plain")]
        bar = interval_bar(line.score, line.interval, scale)
        size = size_text(items_text(line, w), line.clusters, w)
        rows.append(
            [
                Cell(labels[line.name], control, kind="head"),
                Mark(score_text(line.score, line.interval), "score", link),
                Cell(interval_text(line.interval, w), figure=bar),
                Cell(size, [abstained_text(line, w)]),
                number(line.repeats),
            ]
        )
    columns = [w("table.checkpoint"), score, w("table.interval"), *heads]
    return Table(columns, rows, note=mark(table, w))


def _link(line: Scored, folder: Path) -> str:
    return "" if line.file is None else Path(os.path.relpath(line.file, folder)).as_posix()


def difference_table(table: Compared, w: Words) -> Table:
    """The verdicts against the control with their figures."""
    labels = line_labels(table, w)
    pairs = [(labels[line.name], line.to_control) for line in table.lines if line.to_control]
    scale = difference_scale([pairing.comparison for _, pairing in pairs])
    rows: list[TableRow] = []
    for label, pairing in pairs:
        found, flips = pairing.comparison, pairing.flips
        limits = w.ends(found.interval, partial(difference_text, interval=found.interval))
        counts = f"+{len(flips.gained)} −{len(flips.lost)} ={len(flips.unchanged)}"
        agreement = w("compare.agreement", share=percent(pairing.agreement))
        rows.append(
            [
                Cell(label, kind="head"),
                Mark(w(f"verdict_name.{found.verdict}"), found.verdict),
                Mark(difference_text(found.difference, found.interval), "score"),
                Cell(limits, figure=difference_bar(found, scale, w)),
                "–" if found.verdict == "not comparable" else f"{found.adjusted_p:.2g}",
                detectable_text(found, w),
                Cell(counts, [agreement]),
            ]
        )
    difference, p = (Column(w(f"compare.{name}"), right=True) for name in ("difference", "p"))
    columns = [w("table.checkpoint"), w("compare.verdict"), difference, w("table.interval"), p]
    more = [w("compare.smallest"), w("compare.changes")]
    return Table([*columns, *more], rows, note=mark(table, w))


def detectable_text(found: Comparison, w: Words) -> str:
    """The smallest difference that the design could have seen, in points."""
    smallest = found.minimum_detectable_difference
    if smallest is None:
        return w("compare.nothing_detectable")
    if not found.interval.share:
        return w("compare.detectable_plain", smallest=number(smallest))
    return w("compare.detectable", smallest=f"{smallest * 100:.1f}")


def _tasks(table: Compared, w: Words) -> list[Block]:
    """The runs task by task, then the mean over tasks."""
    labels = line_labels(table, w)
    rows: list[TableRow] = []
    for line in table.tasks:
        for figure in line.figures:
            interval, difference = figure.difference_interval, "–"
            if figure.difference is not None and interval is not None:
                low, high = (difference_text(e, interval) for e in (interval.low, interval.high))
                change = difference_text(figure.difference, interval)
                difference = w("table.short", difference=change, low=low, high=high)
            rows.append(
                [
                    line.task or w("compare.tasks_alike"),
                    number(line.items),
                    labels[figure.run],
                    score_text(figure.score, figure.interval),
                    interval_text(figure.interval, w),
                    difference,
                ]
            )
    if not rows:
        return []
    heads = ("compare.task", "compare.items", "table.checkpoint", "table.score", "table.interval")
    columns = [w(head) for head in (*heads, "compare.difference")]
    return [Text(w("compare.tasks_note"), "soft"), Table(columns, rows)]


def _differences(
    table: Compared, pairings: Sequence[Pairing], labels: Mapping[str, str], w: Words
) -> list[Block]:
    if not pairings:
        return []
    return [
        Text(w("compare.differences_about"), "soft"),
        difference_table(table, w),
        Bullets([sentence_line(labelled_sentence(p, labels, w), w) for p in pairings]),
    ]


def _picked(table: Compared, labels: Mapping[str, str], w: Words) -> list[Block]:
    lines = picked_sentences(table, labels, w)
    return [Bullets(lines)] if lines else []


def _outcomes(table: Compared, labels: Mapping[str, str], w: Words) -> list[Block]:
    blocks = outcome_blocks(table, [labels[line.name] for line in table.lines], w)
    return [Text(w("page.errors_about"), "soft"), *blocks] if blocks else []


def _fairness(table: Compared, control: str, w: Words) -> list[Block]:
    """The parts of the runs' manifests: every difference, then those that are equal. Consequences
    and notes are not for a terminal."""
    if not table.parts:
        return []
    kinds = {state.part: table.state(state) for state in table.parts}
    same = w.listing.join(w(f"part.{part}") for part, kind in kinds.items() if kind == "same")
    loud, quiet = (_difference_rows(table, kinds, w, heard) for heard in (True, False))
    columns = [w(f"compare.{name}") for name in ("part", "state", "differs")]
    return [
        Text(w("compare.fairness_about", control=control), "soft"),
        *([Table(columns, loud, kind="parts")] if loud else []),
        *([Only(("html", "markdown"), [Table(columns, quiet, kind="parts")])] if quiet else []),
        *([Text(w("compare.same_list", parts=same))] if same else []),
    ]


def _difference_rows(
    table: Compared, kinds: Mapping[str, str], w: Words, heard: bool
) -> list[TableRow]:
    """The parts with differences that count, or those with others."""
    rows: list[TableRow] = []
    for state in table.parts:
        kind = kinds[state.part]
        found = [each for each in state.differences if (each.kind not in QUIET) == heard]
        if found or (heard and kind != "same" and not state.differences):
            lines = [_difference_line(each, w) for each in found] or ["–"]
            mark = Mark(w(f"compare.kind_{kind}"), kind)
            rows.append([w(f"part.{state.part}"), mark, Cell(lines[0], lines[1:])])
    return rows


def _difference_line(difference: Confound, w: Words) -> Line:
    kind = w.within(w(f"compare.kind_{difference.kind}"))
    one, two = difference.control, difference.other
    before, after = _shown(one, two, w), _shown(two, one, w)
    return Mark(difference.path, "code"), kind, f"{w.colon}{before} → {after}"


def _shown(value: Any, beside: Any, w: Words) -> str:
    """A value, cut from where it differs from the one beside it if its beginning would be alike."""
    if value == ABSENT:
        return w("compare.absent")
    texts = (str(each).lower() if isinstance(each, bool) else str(each) for each in (value, beside))
    text, other = (" ".join(each.split()) for each in texts)
    if len(text) <= SHOWN_VALUE:
        return text
    first = next((n for n, (a, b) in enumerate(zip(text, other, strict=False)) if a != b), 0)
    if first < SHOWN_VALUE:
        return f"{text[:SHOWN_VALUE]} …"
    start = first - SHOWN_VALUE // 2
    rest = text[start : start + SHOWN_VALUE]
    return f"… {rest} …" if start + SHOWN_VALUE < len(text) else f"… {rest}"


def _changed_addresses(table: Compared, w: Words) -> Iterator[Block]:
    """The `assay report` address of every changed item, in the record of the other run."""
    for line in table.lines:
        flips = line.to_control.flips if line.to_control else None
        for kind in ("gained", "lost") if flips else ():
            for item in getattr(flips, kind):
                yield Text(f"{w(f'kind.{kind}')}  {line.address}{item}", fit="whole")


def _flips(
    table: Compared, pairings: Sequence[Pairing], labels: Mapping[str, str], door: Door, w: Words
) -> list[Block]:
    """The changed items of each comparison: counts, addresses, the first of each kind in full."""
    if not pairings:
        return []
    rows, problem = _questions(table, pairings)
    blocks: list[Block] = [Text(w("compare.flips_about"), "soft")]
    if problem:
        blocks.append(Text(w("page.no_questions", why=problem), "warning"))
    lines = {line.name: line for line in table.lines}
    for pairing in pairings:
        sides = (lines[pairing.control], lines[pairing.other])
        kinds = {"gained": pairing.flips.gained, "lost": pairing.flips.lost}
        shown = [item for items in kinds.values() for item in items[:SHOWN]]
        answers = {line.name: _answers(line, shown) for line in sides}
        blocks.append(Heading(labelled_sentence(pairing, labels, w)["what"]))
        for kind, items in kinds.items():
            if not items:
                continue
            badge = Mark(w(f"kind.{kind}"), "better" if kind == "gained" else "worse")
            blocks.append(Text((badge, f" {number(len(items))}")))
            for item in items[:SHOWN]:
                both = [(labels[line.name], answers[line.name].get(item)) for line in sides]
                title = Mark(item, "", door(sides, item))
                blocks += question_blocks(title, rows.get(item), both, w)
            addresses = Bullets(
                [Mark(sides[1].address + item, "code", door(sides, item)) for item in items]
            )
            title = w("compare.all_items", count=number(len(items)))
            blocks.append(Folded(title, [addresses]))
        unchanged = f"{w('kind.unchanged')}{w.colon}{number(len(pairing.flips.unchanged))}"
        blocks.append(Text(unchanged, "soft"))
    return blocks


def _questions(table: Compared, pairings: Sequence[Pairing]) -> tuple[Mapping[str, Row], str]:
    """The items by id as the control's source has them, where some changed, and why they could not
    be read."""
    run = table.control.run
    if run is None or not any(p.flips.gained or p.flips.lost for p in pairings):
        return {}, ""
    try:
        return item_rows(run, table.evaluation.name), ""
    except AssayError as error:
        return {}, str(error)


def _answers(line: Scored, items: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """The first answers of a record to some items; none of a file that another tool wrote."""
    if line.file is None or not line.address or not items:
        return {}
    every = answers_in(line.file)
    return {a["item_id"]: a for a in every if a["repeat"] == 0 and a["item_id"] in items}


def _records(table: Compared, labels: Mapping[str, str], folder: Path, w: Words) -> list[Block]:
    """The record of each line, and the command that shows one of its items."""
    pairs: list[tuple[str, Line]] = []
    for line in table.lines:
        link = _link(line, folder)
        show = f"assay report '{line.address}ITEM'" if line.address else ""
        pairs.append((labels[line.name], [Mark(link, "", link), " ", Mark(show, "code")]))
    return [Facts(pairs)]


def _methods(pairings: Sequence[Pairing], w: Words) -> list[str]:
    """The methods of the figures, in sentences."""
    tests = named_tests([pairing.comparison.method for pairing in pairings], w)
    lines = [w("methods.one"), w("methods.two", tests=tests), w("methods.three")]
    return [*lines, w("compare.methods_detectable"), w("compare.methods_fairness")]


@contextmanager
def page_problem(target: Path) -> Iterator[None]:
    """Raises InputError where the page cannot be written."""
    try:
        yield
    except OSError as error:
        problem = f"{target} cannot be written: {error.strerror or error}"
        raise InputError(problem, field="--page", fix="name another folder") from error


def page_file(table: Compared, root: Path, page: Path | None, lang: str, on: str = "") -> Path:
    """The path of the HTML page, `on` the evaluations if not that of the table. Raises InputError
    for a file of another kind."""
    name = _page_name(table, on or table.evaluation.name)
    if page is None or page.is_dir():
        folder = root / FOLDER if page is None else page
        return in_language((folder / name).with_suffix(".html"), lang).resolve()
    if page.suffix != ".html":
        raise InputError(f"{page} is not a .html file", field="--page", fix="write FILE.html")
    return page.resolve()


def _page_name(table: Compared, on: str) -> str:
    """`other-vs-control-on-evaluation`, of names that any file system takes."""
    control, *others = [
        re.sub(r"/[^@]*", "", line.name) if line.address else line.name for line in table.lines
    ]
    name = f"{'-'.join(others)}-vs-{control}-on-{on}" if others else f"{control}-on-{on}"
    # No dot may be left: what follows it would be taken for the suffix.
    clean = re.sub(r"[^A-Za-z0-9_-]+", "-", name)
    # Comparisons whose names begin alike must not replace one another's page.
    whole = len(clean) <= LONGEST_NAME
    return clean if whole else f"{clean[: LONGEST_NAME - 9]}-{sha256_text(name)[:8]}"
