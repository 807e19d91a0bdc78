"""What a page says of the judge behind scores: its agreement with people, in a line."""

from assay.compare.judge_trust import HeldJudge, held
from assay.compare.table import Table
from assay.data.hashing import canonical_json
from assay.pages.facts import RunFacts
from assay.pages.page import Block, Heading, Text
from assay.pages.words import Words, number
from assay.runs.judgement_journal import read_judged


def run_judges(facts: RunFacts, w: Words) -> list[Block]:
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


def judge_blocks(table: Table, w: Words) -> list[Block]:
    """The judge of a table's scores; nothing without one."""
    if table.judge is None:
        return []
    if table.judge.held is None:
        return [Text(w("judge.unheld"), "warning")]
    return [judge_line(table.judge.held, w)]


def judge_line(judge: HeldJudge, w: Words) -> Text:
    """The kappa of each criterion with its interval, and what follows."""
    stored = judge.stored
    kappas = [
        w("judge.unknown", criterion=name)
        if kappa is None or kappa.interval is None
        else w(
            "judge.kappa",
            criterion=name,
            kappa=kappa.value,
            low=kappa.interval.low,
            high=kappa.interval.high,
        )
        for name, kappa in judge.kappas.items()
    ]
    silent = sum(not each.verdict for each in stored.judged)
    said = w(
        "judge.held",
        model=stored.model,
        answers=number(len(stored.judged)),
        file=stored.labels,
        abstained=number(silent),
        kappas=w.listing.join(kappas),
    )
    trust = w(f"judge.trust_{judge.trust}", least=f"{stored.least_kappa:g}")
    kind = {"shown": "", "unsure": "note"}.get(judge.trust, "warning")
    return Text(f"{said} {trust}", kind)
