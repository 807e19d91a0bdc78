"""Where a run came from, for its page: data sets, omitted rows, fingerprints, overridden checks.

Also names the items that training rows and tests share. Reads the manifest and, for later
evaluations, their records; checks nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from assay.judge.confounds import dotted
from assay.pages.facts import RunFacts
from assay.pages.page import Block, Column, Facts, Folded, Heading, Mark, Table, Text
from assay.pages.words import Words, flat, number, percent, visible
from assay.runs.history import left_out
from assay.runs.run_directory import CHECKED, overridden, saw_answers

GRAVE = ("questions", "calls")
"""Why a reported score may measure memory."""


def marks(facts: RunFacts, words: Words) -> list[str]:
    """Warnings that come before every number of the run."""
    seen = [words("page.seen_answers")] if saw_answers(facts.manifest) else []
    inside = (str(each).removeprefix(f"{facts.run.path}/") for each in left_out())
    absent = [words("page.left_out", problem=visible(problem)) for problem in inside]
    return [*absent, *overriding(facts, words), *seen, *leaks(facts, words)]


def overriding(facts: RunFacts, words: Words) -> list[str]:
    """The overridden errors of the checks, and the user's reason."""
    if not (reason := overridden(facts.manifest)):
        return []
    problems = [flat(each["what"]) for each in facts.manifest[CHECKED]["errors"]]
    errors = words("punctuation.semicolon").join(problems)
    return [words("page.despite", reason=visible(reason), errors=errors)]


def leaks(facts: RunFacts, words: Words) -> list[str]:
    """Training rows with the questions of a reporting evaluation."""
    looked_at = facts.experiment.evaluate if CHECKED in facts.manifest else ()
    sentences = [
        shared_text(each, words)
        for each in shared(facts)
        if each["report"] and each["kind"] in GRAVE
    ]
    sentences += [
        words("data.shared_later", rows=number(rows), data=data, place=f"evaluate.{record.name}")
        for record in facts.history.evaluations
        if record.role == "report" and record.name not in looked_at
        for data, rows in (record.shared or {}).items()
        if rows
    ]
    return [words("page.leaked", said=leak) for leak in sentences]


def shared(facts: RunFacts) -> list[Mapping[str, Any]]:
    """The overlap of training rows and tests, as the checks recorded it."""
    return facts.manifest.get(CHECKED, {}).get("shared", [])


def shared_lines(facts: RunFacts, data: str, words: Words) -> list[str]:
    """The overlap of one data set, or a sentence that it has none."""
    if CHECKED not in facts.manifest or not facts.experiment.evaluate:
        return []
    trained = {stage.data.partition(".")[0] for stage in facts.experiment.stage.values()}
    own = [each for each in shared(facts) if each["data"].partition(".")[0] == data]
    lines = [shared_text(each, words) for each in own]
    grave = any(each["kind"] in GRAVE for each in own)
    return [words("data.shared_none"), *lines] if data in trained and not grave else lines


def shared_text(share: Mapping[str, Any], words: Words) -> str:
    """One kind of overlap: counts, share and a few names."""
    values = {
        "rows": number(share["rows"]),
        "of": number(share["of"]),
        "share": percent(share["rows"] / share["of"]),
        "exact": number(share["exact"]),
        "data": share["data"],
        "place": share["place"],
        "names": words.listing.join(visible(name) for name in share["names"]),
    }
    return words(f"data.shared_{share['kind']}", **values)


HASH_LENGTH = 32
SHOWN_VALUE = 200


@dataclass(frozen=True, slots=True)
class DataView:
    """One data set in words."""

    name: str
    source: str
    about: str
    dropped: tuple[tuple[str, str], ...]
    leakage: tuple[str, ...]


def data_views(facts: RunFacts, words: Words) -> list[DataView]:
    """The experiment's data sets, with the counts that the manifest holds."""
    recorded = facts.manifest.get("data", {})
    views = []
    for name, spec in facts.experiment.data.items():
        stored = recorded.get(name, {})
        dropped: Mapping[str, int] = stored.get("dropped", {})
        about = words("data.about_unknown")
        if "total" in stored:
            sides = {k: number(stored[k]["rows"]) for k in ("train", "dev", "test") if k in stored}
            counts = {"total": number(stored["total"]), "dropped": number(sum(dropped.values()))}
            about = words("data.about", **counts, **sides)
            if "test" in sides:
                about += words("data.test", rows=sides["test"])
        if sizes := facts.manifest.get(CHECKED, {}).get("tokens", {}).get(f"data.{name}"):
            at = {f"at_{key.rpartition('_')[2]}": number(round(n)) for key, n in sizes.items()}
            about += " " + words("data.tokens", **at)
        against = words.listing.join(spec.disjoint_from)
        leaked = sum(
            count for why, count in dropped.items() if any(b in why for b in spec.disjoint_from)
        )
        common = shared_lines(facts, name, words)
        leakage = [words("data.no_check")] if not against and not common else []
        if against and "total" in stored:
            leakage = [words("data.disjoint", benchmarks=against, count=number(leaked))]
        for teacher, count in stored.get("teachers", {}).items():
            source = words("data.made_by", rows=number(count), teacher=visible(teacher))
            leakage = [source, *leakage]
        shown = tuple((dropped_for(why, words), number(count)) for why, count in dropped.items())
        views.append(DataView(name, spec.origin, about, shown, (*leakage, *common)))
    return views


def data_blocks(facts: RunFacts, words: Words) -> list[Block]:
    """The data sets with their rows, those left out, and the leakage checks."""
    blocks: list[Block] = []
    heads = [words("table.dropped"), Column(words("table.rows"), right=True)]
    for view in data_views(facts, words):
        blocks += [Heading((Mark(view.name), " ", Mark(view.source, "soft"))), Text(view.about)]
        blocks += [Table(heads, view.dropped, kind="small")] if view.dropped else []
        blocks += [Text(line) for line in view.leakage]
    return blocks


def fingerprint_blocks(facts: RunFacts, words: Words) -> list[Block]:
    """The manifest: its single values, then one list for each of its tables."""
    made_of = {k: v for k, v in facts.manifest.items() if k != CHECKED}
    single = {k: v for k, v in made_of.items() if not isinstance(v, Mapping)}
    groups = [(words("fingerprint.run"), single), *made_of.items()]
    blocks: list[Block] = []
    for name, value in groups:
        if isinstance(value, Mapping) and value:
            pairs = [(k, value_mark(each)) for k, each in dotted(value).items() if each != {}]
            blocks.append(Folded(name, [Facts(pairs)], not blocks))
    return blocks


def value_mark(value: Any) -> Mark:
    """A value of a manifest; of a list its length and first members."""
    plain = str(value).lower() if isinstance(value, bool) else str(value)
    if isinstance(value, list):
        plain = ", ".join(map(str, value[:4]))
        plain += f", … ({len(value):,})" * (len(value) > 4)
    text = visible(plain).replace("\n", " ")
    shown = text if len(text) <= SHOWN_VALUE else f"{text[:SHOWN_VALUE]} …"
    return Mark(shown, "hash" * (len(text) >= HASH_LENGTH and " " not in text))


def dropped_for(why: str, words: Words) -> str:
    """The reason in the page's language; text in brackets behind it is kept."""
    known = words.or_own("reason", why)
    if known != why:
        return known
    # A reason may have brackets of its own before those with the benchmark.
    for reason, _, rest in (why.rpartition(" ("), why.partition(" (")):
        known = words.or_own("reason", reason)
        if known != reason:
            return known + words("terminal.badge", badge=rest.removesuffix(")"))
    return why
