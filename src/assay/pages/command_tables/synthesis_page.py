"""The page of `assay synthesise`: rows made and refused, what "verified" means, diversity, leakage,
costs.

What a teacher wrote is shown as text alone. Rows are judged in `lab.synthesise`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from assay.data.leakage import question
from assay.experiment.synthesise_table import MADE_BY
from assay.judge.diversity import Distinct
from assay.lab.synthesise.answers import REASONS
from assay.lab.synthesise.made_set import MadeSet
from assay.lab.synthesise.place import FOLDER
from assay.pages.command_tables.cost_tables import lines_table, money
from assay.pages.page import (
    Block,
    Bullets,
    Code,
    Column,
    Facts,
    Folded,
    Mark,
    Only,
    Page,
    Row,
    Section,
    Table,
    Text,
)
from assay.pages.provenance import dropped_for
from assay.pages.words import Words, flat, number, percent
from assay.tasks.task import answer_text

MOST_TOOLS = 30
SHOWN_ROWS, SHOWN_CHARACTERS = 5, 400
FILES = ("html", "markdown")
"""The media with examples of rows and answers."""


def synthesis_page(made: MadeSet, w: Words) -> Page:
    """The page of one table's rows."""
    figures = {"rows": number(len(made.rows)), "wanted": number(made.spec.rows)}
    lead = w("synthesis.lead", **figures, asked=number(made.asked), teacher=flat(made.teacher))
    blocks: list[Block] = [Text(lead, "lead")]
    if made.stopped:
        blocks.append(Text(w("synthesis.stopped", why=w.or_own("reason", made.stopped)), "warning"))
    blocks += [
        Section("verified", w("synthesis.verified"), [Bullets(list(verified_lines(made, w)))]),
        Section("refused", w("synthesis.refused"), list(refused_blocks(made, w))),
        Section("diversity", w("synthesis.diversity"), list(diversity_blocks(made, w))),
        Section("leakage", w("synthesis.leakage"), list(leakage_blocks(made, w))),
        Section("costs", w("synthesis.costs"), list(cost_blocks(made, w))),
        Section("use", w("synthesis.use"), list(use_blocks(made, w))),
    ]
    return Page(w, w("synthesis.title", table=made.table), blocks)


def verified_lines(made: MadeSet, w: Words) -> Iterator[str]:
    """What was shown of each row, and what was not."""
    spec = made.spec
    yield w("synthesis.reads", format=spec.format)
    if any(message.tool_calls for row in made.rows for message in row.messages):
        yield w("synthesis.calls_fit")
    yield w("synthesis.gold", reward=reward_words(spec.reward))
    if spec.agree is None:
        yield w("synthesis.alone")
        return
    least = -(-spec.agree.samples * spec.agree.least // 1)
    counts = {"least": int(least), "samples": spec.agree.samples, "model": flat(made.solver)}
    yield w("synthesis.agree", **counts)
    same = made.solver == made.teacher
    yield w("synthesis.agree_same" if same else "synthesis.agree_other")


def reward_words(reward: Any) -> str:
    """The name of a reward, or of its parts."""
    return flat(reward) if isinstance(reward, str) else flat(", ".join(reward))


def refused_blocks(made: MadeSet, w: Words) -> Iterator[Block]:
    """Reasons with how many rows they took and an example each."""
    counts, first = made.reasons, {}
    for each in made.refused:
        first.setdefault(each.reason, each)
    rows: list[Row] = [
        [w(f"refused.{reason}"), number(counts[reason]), Mark(cut(first[reason].why), "soft")]
        for reason in REASONS
        if counts[reason]
    ]
    heads = (w("synthesis.reason"), Column(w("table.rows"), right=True), w("synthesis.example"))
    yield Table(heads, rows) if rows else Text(w("synthesis.none_refused"))
    if made.not_needed:
        yield Text(w("synthesis.not_needed", count=number(made.not_needed)), "soft")


def diversity_blocks(made: MadeSet, w: Words) -> Iterator[Block]:
    """Distinct n-grams, clusters, rows of each seed, calls of each tool, lengths."""
    found = made.diversity
    if not made.rows:
        yield Text(w("synthesis.no_rows"))
        return
    heads = ["", Column(w("synthesis.made"), right=True), Column(w("synthesis.seeds"), right=True)]
    heads.append(Column(w("synthesis.ngrams"), right=True))
    rows: list[Row] = [
        [
            w("synthesis.distinct", n=n),
            share_of(each),
            share_of(found.seeds.get(n)),
            number(each.all),
        ]
        for n, each in found.made.items()
    ]
    yield Table(heads, rows, note=w("synthesis.distinct_about"))
    sizes = {"clusters": number(found.clusters), "of": number(found.of)}
    near = {"largest": number(found.largest), "near": f"{made.spec.near:g}"}
    yield Text(w("synthesis.clusters", **sizes, **near))
    spread = found.by_seed
    seeds = {"seeds": number(spread.count), "without": number(found.seeds_without)}
    most = {"mean": number(spread.mean), "most": number(spread.largest)}
    yield Text(w("synthesis.by_seed", **seeds, **most))
    if found.tools_without:
        names = w.listing.join(map(flat, found.tools_without[:MOST_TOOLS]))
        yield Text(w("synthesis.tools_without", count=len(found.tools_without), names=names))


def share_of(found: Distinct | None) -> str:
    """The share of distinct n-grams; a dash where there are none, as of seeds that ask nothing."""
    return percent(found.share if found is not None and found.all else None)


def leakage_blocks(made: MadeSet, w: Words) -> Iterator[Block]:
    """What held-out sets share with rows that were written; those rows are refused."""
    if not made.held_out:
        yield Text(w("synthesis.no_tests"), "warning")
        return
    rows: list[Row] = []
    for held in made.held_out:
        shared = held.shared or {"": 0}
        rows += [
            [flat(held.name), number(held.items), why and dropped_for(why, w), number(count)]
            for why, count in shared.items()
        ]
    heads = [w("synthesis.test"), Column(w("synthesis.items"), right=True)]
    heads += [w("synthesis.shared"), Column(w("synthesis.taken_out"), right=True)]
    yield Table(heads, rows)
    yield Text(w("synthesis.leakage_about"), "soft")


def cost_blocks(made: MadeSet, w: Words) -> Iterator[Block]:
    """Costs by what was asked for, and of a verified row."""
    if made.total is None:
        yield Text(w("synthesis.nothing_asked"))
        return
    yield lines_table("", [*named_costs(made, w)], made.total, w)
    if made.cost_per_row is not None:
        yield Text(w("synthesis.per_row", cost=money(made.cost_per_row)))
    if made.total.uncertain:
        yield Text(w("costs.uncertain", most=money(made.total.uncertain)))
    if made.total.cost is None:
        yield Text(w("synthesis.no_price"))


def named_costs(made: MadeSet, w: Words) -> Iterator[Any]:
    """The lines of costs with what they are for in words."""
    for line in made.costs:
        yield replace(line, name=w(f"asked_for.{line.name}"))


def use_blocks(made: MadeSet, w: Words) -> Iterator[Block]:
    """How the rows are used, where each came from, and a few of them."""
    if not made.rows:
        yield Text(w("synthesis.no_rows"))
        return
    yield Text(w("synthesis.in_file"))
    yield Code(f'[data.train]\nsource = "synthesise:{made.table}"', "toml")
    yield Text(w("synthesis.elsewhere"))
    place = f"{FOLDER}/{made.file.parent.parent.name}/{made.table}/{made.file.name}"
    yield Code(f'[data.train]\nsource = "path:{place}"\nformat = "messages"', "toml")
    for row in made.rows[:SHOWN_ROWS]:
        told = row.extra[MADE_BY]
        facts = [(w("synthesis.question"), cut(question(row))), (w("synthesis.answer"), said(row))]
        facts += [(key, money(v) if key == "cost" else cut(str(v))) for key, v in told.items()]
        yield Only(FILES, [Folded(flat(row.id), [Facts(facts)])])


def said(row: Any) -> str:
    """A row's answer on a line: its calls, else its text."""
    last = row.messages[-1]
    calls = [f"{call.name}({dict(call.arguments)})" for call in last.tool_calls]
    return cut("; ".join(calls) or answer_text(row) or "")


def cut(text: str) -> str:
    """A text on one line, cut at SHOWN_CHARACTERS."""
    text = flat(text)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]} …"


def synthesis_result(made: MadeSet) -> dict[str, Any]:
    """The same for programs."""

    def shares(found: Mapping[int, Distinct]) -> dict[int, dict[str, Any]]:
        return {n: {**asdict(each), "share": each.share} for n, each in found.items()}

    diversity = asdict(made.diversity)
    diversity |= {"made": shares(made.diversity.made), "seeds": shares(made.diversity.seeds)}
    reasons: Sequence[str] = [reason for reason in REASONS if made.reasons[reason]]
    return {
        "table": made.table,
        "file": made.file,
        "rows": len(made.rows),
        "wanted": made.spec.rows,
        "asked": made.asked,
        "refused": {reason: made.reasons[reason] for reason in reasons},
        "not_needed": made.not_needed,
        "stopped": made.stopped,
        "teacher": made.teacher,
        "fingerprint": made.fingerprint,
        "diversity": diversity,
        "held_out": made.held_out,
        "costs": {"total": made.total, "by": made.costs, "per_row": made.cost_per_row},
    }
