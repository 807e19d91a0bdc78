"""The results of a run as blocks of a page, and scores and verdicts in words.

Numbers come from `result_tables` and `judge`; only words and units are added here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from assay.compare.selection_pairs import PickedTable, SelectionPair, SelectionUse
from assay.compare.table import Line as Scored
from assay.compare.table import Pairing
from assay.compare.table import Table as Compared
from assay.judge.intervals import Interval
from assay.judge.verdict import Comparison, as_scored
from assay.pages.charts import interval_bar, outcome_bars
from assay.pages.page import (
    Block,
    Bullets,
    Cell,
    Column,
    Figure,
    Heading,
    Line,
    Mark,
    Row,
    Table,
    Text,
    joined,
)
from assay.pages.result_tables import (
    OTHER,
    ResultRow,
    checkpoint_label,
    is_chosen,
    kept_as_best,
    outcomes,
    result_rows,
    score_parts,
    settings_text,
)
from assay.pages.words import Words, difference_text, number, percent, score_text, visible
from assay.runs.checkpoints import read_selection
from assay.runs.records import ABSTAINED, RIGHT


def picked_sentences(table: Compared, labels: Mapping[str, str], words: Words) -> list[str]:
    """One sentence for each pair of checkpoints and one for each checkpoint; none where the answers
    are no selections."""
    found: PickedTable | None = table.picked
    if found is None:
        return []
    pairs = [_pair(pair, labels, words) for pair in found.pairs]
    return [*pairs, *(_use(labels[name], use, words) for name, use in found.uses.items())]


def _pair(pair: SelectionPair, labels: Mapping[str, str], words: Words) -> str:
    said = words(
        "picked.identical" if pair.same_order == pair.queries else "picked.pair",
        control=labels[pair.control],
        other=labels[pair.other],
        queries=pair.queries,
        order=pair.same_order,
        set=pair.same_set,
        jaccard=f"{pair.jaccard:.3f}",
    )
    if pair.changed is None or pair.moved is None:
        return said
    weights = words("picked.weights", changed=f"{pair.changed:.2%}", moved=f"{pair.moved:.2g}")
    return said + weights


def _use(label: str, use: SelectionUse, words: Words) -> str:
    return words(
        "picked.use",
        label=label,
        queries=use.queries,
        picks=number(use.picks),
        distinct=number(use.distinct),
        effective=f"{use.effective:.1f}",
        entropy=f"{use.entropy:.2f}",
    )


if TYPE_CHECKING:  # gathering facts loads what a comparison does not need
    from assay.pages.facts import Measurement, RunFacts


COLOURS = {RIGHT: "e0", OTHER: "e8", ABSTAINED: "e9"}


def headline(facts: "RunFacts", words: Words) -> dict[str, Any] | None:
    """The best checkpoint's score, compared with the control and the stage before.

    The best checkpoint is the one selected on dev items for the last stage. It is the last measured
    one if none was selected or the selected one was not measured.
    """
    if facts.main is None or facts.main.table is None:
        return None
    table = facts.main.table
    stages = list(facts.experiment.stage)
    best = read_selection(facts.run.path, stages[-1]) if stages else None
    chosen = [line for line in table.lines if best is not None and line.name == best.checkpoint]
    line = (chosen or table.lines)[-1]
    pairings = [p for p in (line.to_control, line.to_previous) if p is not None]
    return {
        "checkpoint": line.name,
        "score": score_text(line.score, line.interval),
        "interval": interval_text(line.interval, words),
        "what": words(
            "table.score_of",
            label=checkpoint_label(line.name, words),
            items=number(line.items),
            benchmark=table.evaluation.benchmark,
            passes=passes(line.repeats, words),
        ),
        "abstained": abstained_text(line, words),
        "badges": badges(is_chosen(facts, line.name), kept_as_best(facts, line.name), words),
        "verdict": pairings[0].comparison.verdict if pairings else "",
        "against": [{**sentence(p, words), **(pairing_view(p, words) or {})} for p in pairings],
    }


def headline_blocks(facts: "RunFacts", words: Words) -> list[Block]:
    """The best checkpoint's score, and its verdicts."""
    found = headline(facts, words)
    if found is None:
        return []
    interval = Mark(words.within(found["interval"]), "soft")
    score = (Mark(found["score"], "score"), interval)
    badges = [Mark(badge, "chosen") for badge in found["badges"]]
    return [
        Text(joined(score, *badges, by=" "), "big"),
        Text(found["what"]),
        *(Text(verdict_line(each, words)) for each in found["against"]),
    ]


def verdict_line(each: Mapping[str, str], words: Words) -> Line:
    """A verdict, what was compared, and the difference."""
    more = words.semicolon + each["detectable"] if each["detectable"] else ""
    verdict = Mark(each["verdict"], each["kind"])
    return verdict, f"{words.colon}{each['what']}{words.colon}{each['difference']}{more}"


def results(facts: "RunFacts", words: Words) -> list[Block]:
    """The main evaluation: its table, and its comparisons in words."""
    if facts.main is None:
        return []
    table = facts.main.table
    rows = result_rows(facts, facts.main, words)
    scale = shared_scale([row.line for row in rows if row.line])
    pairings = [p for row in rows if row.line for p in (row.line.to_control, row.line.to_previous)]
    said = [sentence_line(sentence(p, words), words) for p in pairings if p is not None]
    control = checkpoint_label(table.control.name if table else "base", words)
    columns = [
        *score_columns(words),
        words("table.to_control", control=control),
        words("table.to_previous"),
    ]
    blocks: list[Block] = [Text(about_evaluation(table, words), "soft")] if table else []
    blocks.append(Table(columns, [_result_row(row, scale, words) for row in rows]))
    labels = (
        {line.name: checkpoint_label(line.name, words) for line in table.lines} if table else {}
    )
    picked = picked_sentences(table, labels, words) if table else []
    return [*blocks, Bullets([*said, *picked])]


def score_columns(words: Words) -> list[Column | str]:
    """The heads of `score_cells`, behind that of the checkpoint."""
    score = Column(words("table.score"), right=True)
    return [words("table.checkpoint"), score, words("table.interval"), words("table.items")]


def score_cells(row: ResultRow, scale: tuple[float, float], words: Words) -> list[Cell]:
    """The checkpoint with its badges, then score, interval and size; what was not run says so."""
    marks = [Mark(badge, "chosen") for badge in badges(row.chosen, row.best_of, words)]
    head, line = Cell(row.label, marks, kind="head"), row.line
    if line is None:
        return [head, Cell(words("table.not_run"), kind="soft", span=3)]
    size = size_text(f"{items_text(line, words)} × {line.repeats}", line.clusters, words)
    bar = interval_bar(line.score, line.interval, scale)
    return [
        head,
        Cell(Mark(score_text(line.score, line.interval), "score")),
        Cell(interval_text(line.interval, words), figure=bar),
        Cell(size, [abstained_text(line, words)]),
    ]


def _result_row(row: ResultRow, scale: tuple[float, float], words: Words) -> list[Cell]:
    cells = score_cells(row, scale, words)
    if row.line is None:
        return [cells[0], replace(cells[1], span=5)]
    pairings = (row.line.to_control, row.line.to_previous)
    return [*cells, *(pairing_cell(pairing, words) for pairing in pairings)]


def pairing_cell(pairing: Pairing | None, words: Words) -> Cell:
    """A verdict with its difference below."""
    view = pairing_view(pairing, words)
    if view is None:
        return Cell("–", kind="soft")
    return Cell(Mark(view["verdict"], view["kind"]), [view["short"], view["detectable"]])


def sentence_line(said: Mapping[str, str], words: Words) -> Line:
    """A comparison in words, with the changed items."""
    stop = words("punctuation.stop")
    return Mark(said["what"]), words.colon, said["text"], stop, Mark(said["flips"], "soft")


def others(facts: "RunFacts", words: Words) -> list[Block]:
    """The other reporting evaluations, one row for each of their checkpoints."""
    found = [(m, row) for m in facts.reported[1:] for row in result_rows(facts, m, words)]
    if not found:
        return []
    scale = shared_scale([row.line for _, row in found if row.line])
    rows = [
        [Cell(m.name, [settings(m)], kind="head"), *score_cells(row, scale, words)]
        for m, row in found
    ]
    for row in rows:
        row[1] = replace(row[1], kind="")
    return [Table([words("table.evaluation"), *score_columns(words)], rows)]


def settings(measurement: "Measurement") -> str:
    """Benchmark, options and sampling of an evaluation, in the words of its file."""
    record = measurement.table.evaluation if measurement.table else None
    if record is not None:
        parts: list[str] = [record.benchmark, settings_text(record.options)]
        return "; ".join(p for p in (*parts, settings_text(record.sampling)) if p)
    spec = measurement.spec
    return (spec.benchmark or spec.data or "") if spec else ""


def about_evaluation(table: Compared, words: Words) -> str:
    """How the main evaluation measured."""
    record = table.evaluation
    return words(
        "page.results_about",
        evaluation=record.name,
        items=number(len(record.items)),
        benchmark=record.benchmark,
        passes=passes(record.repeats, words),
        sampling=_clause("sampling", settings_text(record.sampling), words),
        checker=_clause("checker", record.checker, words),
        fewer=_clause("fewer", settings_text(record.fewer), words),
    )


def _clause(name: str, value: str, words: Words) -> str:
    """A part of the sentence about an evaluation; "" if there is none."""
    return words(f"page.results_{name}", **{name: value}) if value else ""


def items_text(line: Scored, words: Words) -> str:
    """The number of items, and the total if only a part was used."""
    if line.part_of is None:
        return number(line.items)
    return words("table.asked", items=number(line.items), all=number(line.part_of))


def size_text(size: str, clusters: int | None, words: Words) -> str:
    """The number of items, and of clusters if items share sources."""
    if clusters is None:
        return size
    return words("table.clustered", size=size, clusters=number(clusters))


def abstained_text(line: Scored, words: Words) -> str:
    """The number of answers without a score, and the bounds that they leave; "" for none."""
    if not line.abstained:
        return ""
    low, high = map(percent, line.possible)
    return words("table.abstained", count=number(line.abstained), low=low, high=high)


def badges(chosen: bool, best_of: Sequence[str], words: Words) -> list[str]:
    """Whether the selection on dev items promoted or kept a checkpoint."""
    promoted = [words("table.chosen")] if chosen else []
    return [*promoted, *(words("table.best_of", stage=stage) for stage in best_of)]


def pairing_view(pairing: Pairing | None, words: Words) -> dict[str, str] | None:
    """A comparison as a table's cell shows it."""
    if pairing is None:
        return None
    found = pairing.comparison
    figures = {
        "difference": difference_text(found.difference, found.interval),
        "low": difference_text(found.interval.low, found.interval),
        "high": difference_text(found.interval.high, found.interval),
    }
    name = words(f"verdict_name.{found.verdict}")
    in_points = "difference" if found.interval.share else "short"
    return {
        "kind": found.verdict,
        "verdict": name,
        "difference": words(f"table.{in_points}", **figures),
        "short": words("table.short", **figures),
        "detectable": beside(found, words),
    }


def beside(found: Comparison, words: Words) -> str:
    """Notes on a verdict: a part of the items, the detectable difference."""
    shared = words("table.shared", items=found.items) if found.asked_of_one else ""
    return words.semicolon.join(filter(None, (shared, detectable(found, words))))


def detectable(found: Comparison, words: Words) -> str:
    """The detectable difference, next to an undecided verdict."""
    if found.verdict != "undecided":
        return ""
    if as_scored(found) != "undecided":
        return words("table.undone")
    smallest = found.minimum_detectable_difference
    if smallest is None:
        return words("table.nothing_detectable")
    if not found.interval.share:
        return words("table.detectable_plain", smallest=number(smallest))
    return words("table.detectable", smallest=f"{smallest * 100:.1f}")


def sentence(pairing: Pairing, words: Words) -> dict[str, str]:
    """A comparison in words."""
    other, control = (checkpoint_label(n, words) for n in (pairing.other, pairing.control))
    flips = words(
        "table.flips",
        gained=len(pairing.flips.gained),
        lost=len(pairing.flips.lost),
        unchanged=len(pairing.flips.unchanged),
        agreement=percent(pairing.agreement),
    )
    return {
        "what": words("table.against", other=other, control=control),
        "text": pairing.explanation(words.verdicts),
        "flips": flips,
    }


def score_part_table(facts: "RunFacts", words: Words) -> list[Block]:
    """The parts of the score by checkpoint; a part that no answer has is N/A."""
    table = facts.main.table if facts.main else None
    found = score_parts(facts, table) if table else []
    if table is None or not found:
        return []
    labels = [checkpoint_label(line.name, words) for line in table.lines]
    rows = [
        [part.name, *("N/A" if s is None else percent(s) for s in part.shares)] for part in found
    ]
    return [_by_checkpoint("part", labels, rows, words)]


def _by_checkpoint(
    head: str, labels: Sequence[str], rows: Sequence[Row], words: Words, kind: str = ""
) -> Table:
    columns = [words(f"table.{head}"), *(Column(label, right=True) for label in labels)]
    return Table(columns, rows, kind=kind)


def all_outcomes(facts: "RunFacts", words: Words) -> list[Block]:
    """The outcomes of each reporting evaluation that has any, the main one first."""
    tables = [m.table for m in facts.reported if m.table is not None and outcomes(m.table)]
    blocks: list[Block] = [Text(words("page.errors_about"), "soft")] if tables else []
    for table in tables:
        labels = [checkpoint_label(line.name, words) for line in table.lines]
        blocks += [Heading(table.evaluation.name)] if len(tables) > 1 else []
        blocks += outcome_blocks(table, labels, words)
    return blocks


def outcome_blocks(table: Compared, labels: Sequence[str], words: Words) -> list[Block]:
    """Answers by outcome: a bar for each line, and the table of counts and shares."""
    colours = iter(f"e{n}" for n in range(1, 9))
    found = [(row, COLOURS.get(row.name) or next(colours)) for row in outcomes(table)]
    if not found:
        return []
    rows = []
    for row, colour in found:
        counts = [
            words("table.unknown")
            if share is None
            else words("table.count_share", count=number(count), share=percent(share))
            for count, share in zip(row.counts, row.shares, strict=True)
        ]
        rows.append([Cell(outcome_name(row.name, words), kind=f"swatch {colour}"), *counts])
    shares = [(colour, [share or 0.0 for share in row.shares]) for row, colour in found]
    bars = outcome_bars(labels, shares, words("page.errors"))
    return [Figure(bars), _by_checkpoint("outcome", labels, rows, words, "small")]


def outcome_name(name: str, words: Words) -> str:
    """An outcome in words; an error type that the catalogue has not, as the record has it."""
    return visible(words.sections["outcome"].get(name, name))


def interval_text(interval: Interval, words: Words) -> str:
    """The limits of a score's interval."""
    return words.ends(interval, lambda end: score_text(end, interval))


def passes(repeats: int, words: Words) -> str:
    """The number of repeats of each item."""
    return words("table.one_pass" if repeats == 1 else "table.many_passes", repeats=repeats)


def shared_scale(lines: Sequence[Scored]) -> tuple[float, float]:
    """The scale of the scores: 0 to 1 if all lie within, else their range."""
    low = min((line.interval.low for line in lines), default=0.0)
    high = max((line.interval.high for line in lines), default=1.0)
    return min(low, 0.0), max(high, 1.0)
