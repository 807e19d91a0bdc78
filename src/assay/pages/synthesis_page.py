"""The page of `assay synthesise`: rows made and refused, what "verified" means, and costs.

What a teacher wrote is shown as text alone. Rows are judged in `lab.synthesise`.
"""

from collections.abc import Iterator
from typing import Any

from assay.lab.synthesise.made_set import REASONS, MadeSet
from assay.pages.command_tables import money
from assay.pages.page import Block, Bullets, Code, Column, Mark, Page, Row, Section, Table, Text
from assay.pages.words import Words, flat, number

SHOWN_ROWS, SHOWN_CHARACTERS = 5, 400


def synthesis_page(made: MadeSet, w: Words) -> Page:
    """The page of one table's rows."""
    figures = {"rows": number(len(made.rows)), "wanted": number(made.spec.rows)}
    lead = w("synthesis.lead", **figures, asked=number(made.questions), teacher=flat(made.teacher))
    blocks: list[Block] = [Text(lead, "lead")]
    if made.stopped:
        blocks.append(Text(w("synthesis.stopped", why=w.or_own("reason", made.stopped)), "warning"))
    blocks += [
        Section("verified", w("synthesis.verified"), [Bullets(list(verified_lines(made, w)))]),
        Section("refused", w("synthesis.refused"), list(refused_blocks(made, w))),
        Section("costs", w("synthesis.costs"), [Text(each) for each in cost_lines(made, w)]),
    ]
    if made.rows:
        line = f'[data.train]\nsource = "synthesise:{made.table}"'
        use = [Text(w("synthesis.in_file")), Code(line, "toml")]
        blocks.append(Section("use", w("synthesis.use"), use))
    return Page(w, w("synthesis.title", table=made.table), blocks)


def verified_lines(made: MadeSet, w: Words) -> Iterator[str]:
    """What was shown of each row, and what was not."""
    reward = made.spec.reward
    yield w("synthesis.reads", format=made.spec.format)
    if any(message.tool_calls for row in made.rows for message in row.messages):
        yield w("synthesis.calls_fit")
    named = flat(reward if isinstance(reward, str) else ", ".join(reward))
    yield w("synthesis.gold", reward=named)
    tests = w.listing.join(map(flat, made.held_out))
    yield w("synthesis.tests", tests=tests) if tests else w("synthesis.no_tests")
    yield w("synthesis.alone")


def refused_blocks(made: MadeSet, w: Words) -> Iterator[Block]:
    """Reasons with how many rows they took and an example each."""
    counts, first = made.reasons, {}
    for each in made.refused:
        first.setdefault(each.reason, each)
    reasons = [reason for reason in REASONS if counts[reason]]
    rows: list[Row] = [
        [w(f"refused.{each}"), number(counts[each]), Mark(cut(first[each].why), "soft")]
        for each in reasons
    ]
    heads = (w("synthesis.reason"), Column(w("table.rows"), right=True), w("synthesis.example"))
    yield Table(heads, rows) if rows else Text(w("synthesis.none_refused"))
    if made.not_needed:
        yield Text(w("synthesis.not_needed", count=number(made.not_needed)), "soft")


def cost_lines(made: MadeSet, w: Words) -> Iterator[str]:
    """What all calls cost, and a verified row."""
    total = made.total
    if total is None:
        yield w("synthesis.nothing_asked")
        return
    if total.cost is None:
        yield w("synthesis.no_price")
    else:
        yield w("synthesis.paid", cost=money(total.cost), calls=number(total.calls))
    if made.cost_per_row is not None:
        yield w("synthesis.per_row", cost=money(made.cost_per_row))
    if total.uncertain:
        yield w("costs.uncertain", most=money(total.uncertain))


def cut(text: str) -> str:
    """A text on one line, cut at SHOWN_CHARACTERS."""
    text = flat(text)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]} …"


def synthesis_result(made: MadeSet) -> dict[str, Any]:
    """The same for programs."""
    return {
        "table": made.table,
        "file": made.file,
        "rows": len(made.rows),
        "wanted": made.spec.rows,
        "asked": made.questions,
        "refused": {each: made.reasons[each] for each in REASONS if made.reasons[each]},
        "not_needed": made.not_needed,
        "stopped": made.stopped,
        "teacher": made.teacher,
        "fingerprint": made.fingerprint,
        "held_out": made.held_out,
        "costs": {"total": made.total, "per_row": made.cost_per_row},
    }
