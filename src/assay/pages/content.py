"""The results of runs in words, for every page and the terminal: scores, verdicts, outcomes.

Numbers come from the table of a comparison; words, units and links are added here. A cell without a
measurement says "not run", never 0.
"""

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from assay.compare.table import ComparisonTable, HeldJudge, Pairing, held
from assay.compare.table import Line as Scored
from assay.data.files import canonical_json
from assay.experiment.checkpoint_reference import parse_checkpoint
from assay.judge.arms import AtK, SampledScores
from assay.judge.intervals import Interval
from assay.judge.verdict import Comparison, as_scored
from assay.pages.charts import interval_bar
from assay.pages.page import (
    Block,
    Bullets,
    Cell,
    Column,
    Folded,
    Heading,
    Line,
    Mark,
    Row,
    Section,
    Table,
    Text,
)
from assay.pages.words import Words, difference_text, number, percent, score_text, visible
from assay.runs.judgement_journal import read_judged
from assay.runs.records import ABSTAINED, RIGHT
from assay.runs.run_files import read_selection, read_selections

if TYPE_CHECKING:  # gathering facts loads what a comparison does not need
    from assay.pages.facts import Measurement, RunFacts

Labels = Mapping[str, str]
"""The names of lines as a page shows them."""
OTHER = "other"
SHOWN_ERRORS = 7
SHOWN_REPEATS = 10


def checkpoint_label(name: str, words: Words) -> str:
    """The label of a checkpoint such as `sft.step-000040`."""
    reference = parse_checkpoint(name)
    if reference is None or reference.stage is None:
        return words("checkpoint.base") if name == "base" else name
    if reference.step is None:
        return f"{reference.stage}.{reference.which}"
    if reference.step == 0:
        return words("checkpoint.start", stage=reference.stage)
    return words("checkpoint.step", stage=reference.stage, step=reference.step)


def checkpoint_labels(table: ComparisonTable, words: Words) -> dict[str, str]:
    """The labels of the checkpoints of one run."""
    return {line.name: checkpoint_label(line.name, words) for line in table.lines}


def badges(facts: "RunFacts", name: str, words: Words) -> list[Mark]:
    """Whether the selection on dev items promoted a checkpoint over its stage's start, or kept it
    because no later one could be shown to be better."""
    chosen = [s for s in read_selections(facts.run.path).items() if s[1].checkpoint == name]
    promoted = [words("table.chosen")] if any(each.promoted for _, each in chosen) else []
    kept = [words("table.best_of", stage=stage) for stage, each in chosen if not each.promoted]
    return [Mark(text, "chosen") for text in (*promoted, *kept)]


def pairings(table: ComparisonTable) -> list[Pairing]:
    """Every comparison with the control and with the stage before."""
    every = [p for line in table.lines for p in (line.to_control, line.to_previous)]
    return [pairing for pairing in every if pairing is not None]


def best_line(facts: "RunFacts") -> Scored | None:
    """The checkpoint selected on dev items for the last stage; the last measured one if none was
    selected, or the selected one was not measured."""
    if facts.main is None or facts.main.table is None:
        return None
    lines, stages = facts.main.table.lines, list(facts.experiment.stage)
    best = read_selection(facts.run.path, stages[-1]) if stages else None
    return ([x for x in lines if best is not None and x.name == best.checkpoint] or [lines[-1]])[-1]


def nothing_measured(main: "Measurement | None", words: Words) -> str:
    """Why there is no score."""
    return words("page.unmeasured", name=visible(main.name)) if main else words("page.unreported")


def headline_blocks(facts: "RunFacts", words: Words) -> list[Text]:
    """The best checkpoint's score, and its verdicts against the control and the stage before."""
    line = best_line(facts)
    if line is None or facts.main is None or facts.main.table is None:
        return [Text(nothing_measured(facts.main, words))]
    table, label = facts.main.table, checkpoint_label(line.name, words)
    figures = {"items": number(line.items), "benchmark": table.evaluation.benchmark}
    what = words("table.score_of", label=label, passes=passes(line.repeats, words), **figures)
    score = Mark(score_text(line.score, line.interval), "score")
    labels = checkpoint_labels(table, words)
    pairings = [p for p in (line.to_control, line.to_previous) if p is not None]
    unscored = abstained_text(line, words)
    return [
        Text((score, f"{words.within(interval_text(line.interval, words))} {what}"), "big"),
        *([Text(unscored, "warning")] if unscored else []),
        *(Text(verdict_line(each, labels, words)) for each in pairings),
    ]


MOST_PAIRS = 4
MOST_WHOLE, MOST_SHOWN = 8, 3
"""Checkpoints in a table that is shown whole, and of a longer one beside what is marked."""


def fewer(table: ComparisonTable, marked: Iterable[str] = ()) -> ComparisonTable:
    """Of many checkpoints a few, first and last among them, and those that are marked; each against
    the control alone, because the one before it may not be shown."""
    places = {round(n * (len(table.lines) - 1) / (MOST_SHOWN - 1)) for n in range(MOST_SHOWN)}
    kept = [x for n, x in enumerate(table.lines) if n in places or x.name in marked]
    alone = tuple(replace(x, to_previous=None) for x in kept)
    return replace(table, lines=alone) if len(table.lines) > MOST_WHOLE else table


def result_blocks(facts: "RunFacts", measurement: "Measurement", words: Words) -> list[Block]:
    """An evaluation of a run: its table, and its comparisons in words."""
    if measurement.table is None:
        return [Text(f"{measurement.name}{words.colon}{words('table.not_run')}")]
    table = measurement.table
    labels = checkpoint_labels(table, words)
    marks = {name: badges(facts, name, words) for name in labels}
    missing = [checkpoint_label(name, words) for name in measurement.missing]
    below = {
        line.name: repeats_text(line, facts.answers(table.evaluation, line.name), words)
        for line in table.lines
        if line.repeats > 1
    }

    def tables(shown: ComparisonTable, missing: Sequence[str]) -> list[Block]:
        scores = score_table(shown, labels, words, marks=marks, missing=missing, below=below)
        return [scores, *difference_blocks(shown, labels, words)]

    few = fewer(table, [name for name, own in marks.items() if own])
    blocks: list[Block] = [Text(about_evaluation(table, words), "soft")]
    if few is table and len(missing) <= MOST_WHOLE:
        return [*blocks, *tables(table, missing)]
    every = words("table.every_checkpoint", count=len(table.lines) + len(missing))
    return [*blocks, *tables(few, missing[:1]), Folded(every, tables(table, missing))]


def repeats_text(line: Scored, answers: Iterable[Mapping[str, Any]], words: Words) -> list[str]:
    """Each repeat's mean over its scored answers with their standard deviation, then pass@k."""
    scores: dict[int, list[float]] = {}
    for answer in answers:
        if answer["score"] is not None:
            scores.setdefault(answer["repeat"], []).append(answer["score"])
    means = [fmean(own) for _, own in sorted(scores.items())]
    texts = []
    if len(means) > 1:
        spread = f"{100 * stdev(means):.1f}" if line.interval.share else number(stdev(means))
        shown = words.comma.join(score_text(mean, line.interval) for mean in means[:SHOWN_REPEATS])
        more = words.comma + "…" if len(means) > SHOWN_REPEATS else ""
        texts.append(words("table.repeats", scores=shown + more, spread=spread))
    passed = line.sampled.passes if line.sampled else ()
    figures = [f"pass@{x.k} {score_text(x.value, x.interval)}" for x in passed if x.k > 1]
    return [*texts, words.comma.join(figures)]


def score_table(
    table: ComparisonTable,
    labels: Labels,
    words: Words,
    folder: Path | None = None,
    marks: Mapping[str, Sequence[Mark]] | None = None,
    missing: Sequence[str] = (),
    note: str = "",
    below: Mapping[str, Sequence[str]] | None = None,
) -> Table:
    """The checkpoints with their scores, which lead to their records from a page in `folder`, and
    what stands `below` them; then those that are still missing."""
    ends = [end for line in table.lines for end in (line.interval.low, line.interval.high)]
    scale = min(0.0, *ends), max(1.0, *ends)
    rows: list[Row] = []
    for line in table.lines:
        control = [] if line.to_control else [Mark(words("compare.control"), "plain")]
        size = clustered(f"{items_text(line, words)} × {line.repeats}", line.clusters, words)
        rows.append(
            [
                Cell(labels[line.name], (marks or {}).get(line.name, control), kind="head"),
                Cell(
                    Mark(score_text(line.score, line.interval), "score", address(line, folder)),
                    (below or {}).get(line.name, ()),
                ),
                Cell(
                    interval_text(line.interval, words),
                    figure=interval_bar(line.score, line.interval, scale),
                ),
                Cell(size, [abstained_text(line, words)]),
            ]
        )
    not_run = words("table.not_run")
    rows += [[Cell(name, kind="head"), Cell(not_run, kind="soft", span=3)] for name in missing]
    score = Column(words("table.score"), right=True)
    columns = [words("table.checkpoint"), score, words("table.interval"), words("table.items")]
    return Table(columns, rows, note=note)


def address(line: Scored, folder: Path | None) -> str:
    """The record of a line, as a page in `folder` links to it; "" where there is none."""
    if folder is None or line.file is None:
        return ""
    return Path(os.path.relpath(line.file, folder)).as_posix()


def difference_blocks(
    table: ComparisonTable, labels: Labels, words: Words, note: str = ""
) -> list[Block]:
    """The verdicts with their figures, then in words with the changed items; of more than
    MOST_PAIRS only those against the control have figures."""
    rows: list[Row] = []
    flip_lines: list[Line] = []
    every = pairings(table)
    few = every if len(every) <= MOST_PAIRS else [line.to_control for line in table.lines]
    for pairing in every:
        comparison, flips = pairing.comparison, pairing.flips
        what = against(pairing, labels, words)
        p = "–" if comparison.verdict == "not comparable" else f"{comparison.adjusted_p:.2g}"
        verdict = Cell(verdict_mark(comparison, words), [beside(comparison, words)])
        difference = Mark(difference_text(comparison.difference, comparison.interval), "score")
        row = [Cell(what, kind="head"), verdict, difference, limits(comparison, words), p]
        rows += [row] if pairing in few else []
        changed = words(
            "table.flips",
            gained=len(flips.gained),
            lost=len(flips.lost),
            unchanged=len(flips.unchanged),
            agreement=percent(pairing.agreement),
        )
        text = f"{words.colon}{pairing.explanation(words.verdicts)}{words('punctuation.stop')}"
        flip_lines.append((Mark(what), text, Mark(changed, "soft")))
    if not rows:
        return []
    difference, p = (Column(words(f"compare.{name}"), True) for name in ("difference", "p"))
    heads = [words("table.checkpoint"), words("compare.verdict")]
    columns = [*heads, difference, words("table.interval"), p]
    told = Folded(words("compare.verdicts_told"), [Bullets(flip_lines)])
    return [Table(columns, rows, note=note), told]


def against(pairing: Pairing, labels: Labels, words: Words) -> str:
    """What is compared with what."""
    other, control = labels[pairing.other], labels[pairing.control]
    return words("table.against", other=other, control=control)


def verdict_mark(comparison: Comparison, words: Words) -> Mark:
    """A verdict by its name."""
    return Mark(words(f"verdict_name.{comparison.verdict}"), comparison.verdict)


def verdict_line(pairing: Pairing, labels: Labels, words: Words) -> Line:
    """A verdict, what was compared, and the difference."""
    comparison = pairing.comparison
    change = change_text(comparison.difference, comparison.interval, words, units=True)
    parts = [against(pairing, labels, words), change]
    more = words.semicolon + note if (note := beside(comparison, words)) else ""
    return verdict_mark(comparison, words), words.colon + words.colon.join(parts) + more


def change_text(change: float, interval: Interval, words: Words, units: bool = False) -> str:
    """A difference with its limits; `units` says that they are points."""
    ends = (change, interval.low, interval.high)
    difference, low, high = (difference_text(end, interval) for end in ends)
    key = "table.difference" if units and interval.share else "table.short"
    return words(key, difference=difference, low=low, high=high)


def limits(comparison: Comparison, words: Words) -> str:
    """The limits of a difference."""
    return words.ends(comparison.interval, lambda end: difference_text(end, comparison.interval))


def beside(comparison: Comparison, words: Words) -> str:
    """Notes on a verdict: a part of the items, and beside "undecided" what could be detected."""
    notes = [words("table.shared", items=comparison.items)] if comparison.control_only else []
    smallest = comparison.minimum_detectable_difference
    if comparison.verdict == "undecided" and as_scored(comparison) != "undecided":
        notes.append(words("table.undone"))
    elif comparison.verdict == "undecided" and smallest is None:
        notes.append(words("table.nothing_detectable"))
    elif comparison.verdict == "undecided" and comparison.interval.share:
        notes.append(words("table.detectable", smallest=f"{(smallest or 0) * 100:.1f}"))
    elif comparison.verdict == "undecided":
        notes.append(words("table.detectable_plain", smallest=number(smallest)))
    if comparison.verdict == "undecided" and comparison.resolution is not None:
        notes.append(words("table.resolution", ratio=f"{comparison.resolution:.2g}"))
    return words.semicolon.join(notes)


def picked_blocks(table: ComparisonTable, labels: Labels, words: Words) -> list[Block]:
    """One sentence for each pair of checkpoints; none where the answers are no selections."""
    lines = [
        words(
            "picked.identical" if pair.same_order == pair.queries else "picked.pair",
            control=labels[pair.control],
            other=labels[pair.other],
            queries=pair.queries,
            order=pair.same_order,
            set=pair.same_set,
            jaccard=f"{pair.jaccard:.3f}",
        )
        for pair in table.picked
    ]
    return [Bullets(lines)] if lines else []


def about_evaluation(table: ComparisonTable, words: Words) -> str:
    """How an evaluation measured."""
    record = table.evaluation
    clauses = {"sampling": settings_text(record.sampling), "checker": record.checker}
    clauses["fewer"] = settings_text(record.fewer)
    return words(
        "page.results_about",
        evaluation=record.name,
        items=number(len(record.items)),
        benchmark=record.benchmark,
        passes=passes(record.repeats, words),
        **{k: words(f"page.results_{k}", **{k: v}) if v else "" for k, v in clauses.items()},
    )


def items_text(line: Scored, words: Words) -> str:
    """The number of items, and the total if only a part was used."""
    if line.part_of is None:
        return number(line.items)
    return words("table.asked", items=number(line.items), all=number(line.part_of))


def clustered(size: str, clusters: int | None, words: Words) -> str:
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


def interval_text(interval: Interval, words: Words) -> str:
    """The limits of a score's interval."""
    return words.ends(interval, lambda end: score_text(end, interval))


def passes(repeats: int, words: Words) -> str:
    """The number of repeats of each item."""
    return words("table.one_pass" if repeats == 1 else "table.many_passes", repeats=repeats)


def score_part_table(facts: "RunFacts", words: Words) -> list[Block]:
    """The parts of the score by checkpoint, in the order in which answers first name them; a part
    that no answer has is N/A."""
    table = facts.main.table if facts.main else None
    if table is None:
        return []
    columns = [_part_means(facts.answers(table.evaluation, line.name)) for line in table.lines]
    names = dict.fromkeys(name for column in columns for name in column)
    rows = [[n, *(percent(c[n]) if n in c else "N/A" for c in columns)] for n in names]
    heads = checkpoint_labels(table, words).values()
    return [_by_checkpoint("part", heads, rows, words)] if rows else []


def _part_means(answers: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Mean of every part over the answers that were scored and have it."""
    values: dict[str, list[float]] = {}
    for answer in answers:
        parts = json.loads(answer["parts"]) if answer["score"] is not None else {}
        for name, value in parts.items():
            values.setdefault(name, []).append(value)
    return {name: sum(scores) / len(scores) for name, scores in values.items()}


def _by_checkpoint(head: str, labels: Iterable[str], rows: Sequence[Row], words: Words) -> Table:
    columns = [words(f"table.{head}"), *(Column(label, right=True) for label in labels)]
    return Table(columns, rows, kind="cards small")


def all_outcomes(facts: "RunFacts", words: Words) -> list[Block]:
    """The outcomes of each reporting evaluation that has any, the main one first."""
    blocks: list[Block] = []
    for table in (each.table for each in facts.reported if each.table is not None):
        outcomes = outcome_blocks(table, checkpoint_labels(table, words), words)
        blocks += [Heading(table.evaluation.name), *outcomes] if outcomes else []
    return blocks


def outcome_blocks(table: ComparisonTable, labels: Labels, words: Words) -> list[Block]:
    """Right answers, error types by how frequent they are, the rarest together, abstentions;
    nothing where no outcome is known, as of another tool's file."""
    columns = [Counter(line.outcomes) for line in table.lines]
    totals = sum(columns, Counter())
    if not totals:
        return []
    errors = [n for n, _ in totals.most_common() if n not in (RIGHT, ABSTAINED)]
    rare = errors[SHOWN_ERRORS:]
    counts = {
        name: [column[name] for column in columns] for name in (RIGHT, *errors[:SHOWN_ERRORS])
    }
    if rare:
        counts[OTHER] = [sum(column[name] for name in rare) for column in columns]
    if totals[ABSTAINED]:
        counts[ABSTAINED] = [column[ABSTAINED] for column in columns]
    answers = [column.total() for column in columns]

    def told(count: int, of: int) -> str:
        share = percent(count / of) if of else ""
        return words("table.count_share", count=number(count), share=share) if of else "–"

    rows = [
        [visible(words.or_own("outcome", name)), *map(told, row, answers)]
        for name, row in counts.items()
    ]
    heads = [labels[line.name] for line in table.lines]
    return [
        Text(words("page.errors_about"), "soft"),
        _by_checkpoint("outcome", heads, rows, words),
    ]


def settings_text(settings: Mapping[str, Any]) -> str:
    """Settings as `name value`, nested ones with their path, a true one by its name alone; what is
    not set is left out."""
    parts = []
    for name, value in settings.items():
        if isinstance(value, Mapping):
            inner = settings_text(value)
            parts.append(f"{name} ({inner})" if inner else "")
        elif value is not None:
            parts.append(name if value is True else f"{name} {setting_text(value)}")
    return ", ".join(filter(None, parts))


def setting_text(value: Any) -> str:
    """A value as an experiment file writes it: `true`, and numbers in six digits."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def run_generation(facts: "RunFacts", words: Words) -> list[Block]:
    """How the answers of all reporting evaluations were generated."""
    tables = [measurement.table for measurement in facts.reported if measurement.table is not None]
    return generation_blocks([(each, checkpoint_labels(each, words)) for each in tables], words)


def generation_blocks(
    tables: Sequence[tuple[ComparisonTable, Labels]], words: Words
) -> list[Block]:
    """The limits and truncated answers of every line, then what its repeats say; nothing where
    neither is known."""
    unknown = words("generation.unknown")
    rows = [
        [
            table.evaluation.name,
            labels[line.name],
            settings_text(line.limits) or unknown,
            truncated_text(line.truncated, line.items * line.repeats, words),
            sampled_text(line, words),
        ]
        for table, labels in tables
        for line in table.lines
    ]
    if all(row[2] == row[3] == unknown and not row[4] for row in rows):
        return []
    heads = [words(f"table.{name}") for name in ("evaluation", "checkpoint")]
    truncated = Column(words("generation.truncated"), right=True)
    sampled = any(row[4] for row in rows)
    columns = [*heads, words("generation.limits"), truncated]
    columns += [words("generation.sampled")] if sampled else []
    about = [Text(words("generation.sampled_about"), "soft")] if sampled else []
    return [Table(columns, [row[: len(columns)] for row in rows], kind="cards small"), *about]


def truncated_text(truncated: int | None, answers: int, words: Words) -> str:
    """The share of answers that were cut, with the counts."""
    if truncated is None:
        return words("generation.unknown")
    counts = {"count": number(truncated), "answers": number(answers)}
    return words("generation.share", share=percent(truncated / answers), **counts)


def sampled_text(line: Scored, words: Words) -> str:
    """mean@n and pass@k with their intervals, and why there is no pass@k; "" without samples."""
    if line.sampled is None:
        return ""
    figures = [
        f"{name} {score_text(x.value, x.interval)}{words.within(interval_text(x.interval, words))}"
        for name, x in figures_by_name(line.sampled).items()
    ]
    return words.comma.join([*figures, *sampled_notes([line.sampled], words)])


def figures_by_name(scores: SampledScores) -> dict[str, AtK]:
    """The figures by their usual names; pass@1 is the mean, and left out."""
    passed = {f"pass@{each.k}": each for each in scores.passes if each.k > 1}
    return {f"mean@{scores.mean.k}": scores.mean, **passed}


def sampled_notes(scores: Iterable[SampledScores], words: Words) -> list[str]:
    """Why there is no pass@k."""
    return [words("generation.not_binary") for each in scores if not each.binary]


def run_judges(facts: "RunFacts", w: Words) -> list[Block]:
    """The judges of a run: of each reporting evaluation, then those of stages alone."""
    blocks: list[Block] = []
    shown: list[str] = []
    for each in facts.reported:
        if each.table is not None and each.table.judge is not None:
            blocks += [Heading(each.name), *judge_blocks(each.table, w)]
            shown.append(canonical_json(each.table.judge.rubric))
    for stored in read_judged(facts.run):
        if canonical_json(stored.settings) not in shown:
            blocks += [Heading(stored.kind), judge_line(held(stored), w)]
    return blocks


def judge_blocks(table: ComparisonTable, w: Words) -> list[Block]:
    """The judge of a table's scores; nothing without one."""
    if table.judge is None:
        return []
    if table.judge.held is None:
        return [Text(w("judge.unheld"), "warning")]
    return [judge_line(table.judge.held, w)]


def judge_line(judge: HeldJudge, w: Words) -> Text:
    """The kappa of each criterion with its interval, and what follows."""
    stored = judge.stored
    kappas = []
    for name, kappa in judge.kappas.items():
        if kappa is None or (ends := kappa.interval) is None:
            kappas.append(w("judge.unknown", criterion=name))
        else:
            figures = {"kappa": kappa.value, "low": ends.low, "high": ends.high}
            kappas.append(w("judge.kappa", criterion=name, **figures))
    agreement = w(
        "judge.held",
        model=stored.model,
        answers=number(len(stored.judged)),
        file=stored.labels,
        abstained=number(sum(not each.verdict for each in stored.judged)),
        kappas=w.listing.join(kappas),
    )
    trust = w(f"judge.trust_{judge.trust}", least=f"{stored.least_kappa:g}")
    kind = {"shown": "", "unsure": "note"}.get(judge.trust, "warning")
    return Text(f"{agreement} {trust}", kind)


def sections(
    parts: Mapping[str, tuple[str, Callable[[], Sequence[Block]]]], wanted: Sequence[str] = ()
) -> list[Section]:
    """The parts of a page, by anchor, that have something to say; some where they are `wanted`."""
    built = ((anchor, *parts[anchor]) for anchor in wanted or parts)
    return [Section(anchor, title, made) for anchor, title, make in built if (made := make())]
