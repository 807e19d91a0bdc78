"""What a page says of the judge behind scores: agreement with people, bias, and the scores that
their labels correct.

Figures come from `compare.judge_trust`.
"""

from collections.abc import Mapping, Sequence
from functools import partial

from assay.compare.judge_trust import HeldJudge, JudgedBy, held_judges
from assay.compare.table import Table as Compared
from assay.data.hashing import canonical_json
from assay.judge.intervals import Estimate
from assay.judge.label_agreement import Agreement
from assay.judge.prediction_powered import Corrected
from assay.judge.templates import with_minus
from assay.pages.facts import RunFacts
from assay.pages.page import Block, Cell, Column, Folded, Heading, Mark, Row, Table, Text
from assay.pages.result_tables import checkpoint_label
from assay.pages.words import (
    Words,
    difference_text,
    number,
    percent,
    score_text,
    visible,
)


def run_judges(facts: RunFacts, w: Words) -> list[Block]:
    """The judges of a run: of each reporting evaluation, then those of stages alone."""
    blocks: list[Block] = []
    shown: list[str] = []
    for each in facts.reported:
        if each.table is not None and each.table.judge is not None:
            labels = {line.name: checkpoint_label(line.name, w) for line in each.table.lines}
            blocks += [Heading(each.name), *judge_blocks(each.table, labels, w)]
            shown.append(canonical_json(each.table.judge.rubric))
    for judge in held_judges(facts.run):
        if canonical_json(judge.stored.settings) not in shown:
            blocks += [Heading(judge.stored.kind), *held_blocks(judge, w)]
    return blocks


def judge_blocks(table: Compared, labels: Mapping[str, str], w: Words) -> list[Block]:
    """The judge of a table's scores, `labels` naming its lines; nothing without one."""
    judge = table.judge
    if judge is None:
        return []
    if judge.held is None:
        return [Text(w("judge.unheld"), "warning")]
    return [
        *corrected_blocks(table, judge, labels, w),
        *held_blocks(judge.held, w),
    ]


def corrected_blocks(
    table: Compared, judge: JudgedBy, labels: Mapping[str, str], w: Words
) -> list[Block]:
    """Each score and each difference as the judge has it and as the labels correct it."""
    heads = ("raw", "corrected", "labelled", "tuning", "to_halve")
    columns = [w("table.checkpoint"), *(Column(w(f"judge.{name}"), right=True) for name in heads)]
    scores = [_score_row(table, judge, each.name, labels[each.name], w) for each in table.lines]
    differences: list[Row] = []
    for line in table.lines:
        found = judge.differences.get(line.name)
        if line.to_control is None or found is None:
            continue
        raw, verdict = line.to_control.comparison, judge.verdict(line.name) or "undecided"
        differences.append(
            [
                Cell(labels[line.name], kind="head"),
                Cell(
                    difference_text(raw.difference, raw.interval),
                    [w.ends(raw.interval, partial(difference_text, interval=raw.interval))],
                ),
                _corrected_cell(found, w, difference=True),
                Cell(Mark(w(f"verdict_name.{verdict}"), verdict), [f"p = {found.p_value:.2g}"]),
                *_label_cells(found, w),
            ]
        )
    heads = ("raw_difference", "corrected_difference", "verdict", "labelled", "tuning", "to_halve")
    more = [w("table.checkpoint"), *(Column(w(f"judge.{name}"), right=True) for name in heads)]
    return [
        Text(w("judge.corrected_about"), "soft"),
        Table(columns, scores),
        *([Table(more, differences)] if differences else []),
    ]


def _score_row(table: Compared, judge: JudgedBy, name: str, label: str, w: Words) -> Row:
    line = next(each for each in table.lines if each.name == name)
    raw = Cell(
        score_text(line.score, line.interval),
        [w.ends(line.interval, partial(score_text, interval=line.interval))],
    )
    found = judge.scores.get(name)
    if found is None:
        return [
            Cell(label, kind="head"),
            raw,
            Mark(w("judge.uncorrected"), "warning"),
            "–",
            "–",
            "–",
        ]
    return [Cell(label, kind="head"), raw, _corrected_cell(found, w), *_label_cells(found, w)]


def _corrected_cell(found: Corrected, w: Words, *, difference: bool = False) -> Cell:
    write = partial(difference_text if difference else score_text, interval=found.interval)
    return Cell(Mark(write(found.value), "score"), [w.ends(found.interval, write)])


def _label_cells(found: Corrected, w: Words) -> list[str]:
    halved = w("judge.not_by_labels") if found.to_halve is None else number(found.to_halve)
    of = w("judge.of", labelled=number(found.labelled), items=number(found.items))
    return [of, f"{found.tuning:.2f}", halved]


def held_blocks(held: HeldJudge, w: Words) -> list[Block]:
    """A judge beside people's labels: agreement, confusion, bias, and what fools it."""
    stored = held.stored
    counts = {"answers": len(stored.judged), "file": stored.labels, "model": stored.model}
    said = w("judge.held", **counts, abstained=held.abstained, least=f"{stored.least_kappa:g}")
    more = [
        w(f"judge.{name}", count=number(count))
        for name, count in (("waiting", stored.waiting), ("unread", stored.unread))
        if count
    ]
    why = [f"{visible(reason)}{w.colon}{number(count)}" for reason, count in stored.why.items()]
    trust = w(f"judge.trust_{held.trust}", least=f"{stored.least_kappa:g}")
    kind = {"shown": "", "unsure": "note"}.get(held.trust, "warning")
    return [
        Text(" ".join([said, *more])),
        Text(trust, kind),
        *([Text(w.listing.join(why), "soft")] if why else []),
        *([_agreement_table(held.agreements, w)] if held.agreements else []),
        *(_confusion(each, w) for each in held.agreements),
        *_leaning_tables(held, w),
    ]


def _agreement_table(found: Sequence[Agreement], w: Words) -> Table:
    heads = ("answers", "exact", "kappa", "ranks")
    columns = [w("judge.criterion"), *(Column(w(f"judge.{name}"), right=True) for name in heads)]
    rows: list[Row] = [
        [
            Cell(each.name if each.name != "preference" else w("judge.preference"), kind="head"),
            number(each.exact.trials),
            _estimate_cell(each.exact, w, share=True),
            _estimate_cell(each.kappa, w),
            _estimate_cell(each.ranks, w),
        ]
        for each in found
    ]
    return Table(columns, rows, w("judge.agreement"))


def _estimate_cell(found: Estimate | None, w: Words, *, share: bool = False) -> Cell:
    if found is None:
        return Cell("–")
    write = percent if share else (lambda value: with_minus(f"{value:.2f}"))
    below = [] if found.interval is None else [w.ends(found.interval, write)]
    return Cell(Mark(write(found.value), "score"), below)


def _confusion(found: Agreement, w: Words) -> Folded:
    columns = [w("judge.label"), *(Column(f"{level:g}", right=True) for level in found.levels)]
    rows: list[Row] = [
        [Cell(f"{level:g}", kind="head"), *(number(count) for count in counts)]
        for level, counts in zip(found.levels, found.matrix, strict=True)
    ]
    title = w("judge.confusion", criterion=found.name)
    return Folded(title, [Text(w("judge.confusion_about"), "soft"), Table(columns, rows)])


def _leaning_tables(held: HeldJudge, w: Words) -> list[Block]:
    found, rows = held.leanings, list[Row]()
    if found is None:
        return []
    position = found.position
    shares = {"flips": position and position.flips, "first": position and position.first}
    plain = {"offset": found.offset, "length": found.length, "own": found.own}
    for name, each in {**plain, **shares}.items():
        if each is not None:
            cell = _estimate_cell(each, w, share=name in shares)
            rows.append([Cell(w(f"judge.{name}"), [w(f"judge.{name}_about")], kind="head"), cell])
    blocks: list[Block] = [Table([w("judge.bias"), w("judge.value")], rows, w("judge.leans"))]
    tried: list[Row] = [
        [
            Cell(w(f"canary.{each.kind}"), kind="head"),
            _rise_cell(each.rise, w),
            w("judge.of", labelled=number(each.raised), items=number(each.rise.trials)),
            number(each.abstained),
        ]
        for each in held.injected
    ]
    if tried:
        heads = ("rise", "raised", "silenced")
        columns = [w("judge.text"), *(Column(w(f"judge.{name}"), right=True) for name in heads)]
        blocks.append(Table(columns, tried, w("judge.canaries"), w("judge.canaries_about")))
    return blocks


def _rise_cell(found: Estimate, w: Words) -> Cell:
    def write(value: float) -> str:
        return with_minus(f"{value:+.2f}")

    below = [] if found.interval is None else [w.ends(found.interval, write)]
    return Cell(Mark(write(found.value), "score"), below)
