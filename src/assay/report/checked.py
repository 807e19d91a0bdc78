"""What was found before a run was made, in words: what was overridden, and what training rows and
tests have in common.

The manifest has it (`lab.check.before_run`); for evaluations that came later, their own records say
how many training rows ask what they ask.
"""

from collections.abc import Mapping
from typing import Any

from assay.report.facts import RunFacts
from assay.report.words import Words, flat, number, percent, visible
from assay.runs.manifest_file import CHECKED, overridden

GRAVE = ("questions", "calls")
"""What makes a reported score one of memory."""


def marks(facts: RunFacts, words: Words) -> list[str]:
    """What a reader must know before any number of the run."""
    return [*overriding(facts, words), *leaks(facts, words)]


def overriding(facts: RunFacts, words: Words) -> list[str]:
    """Why the run was made although its checks ended with errors, and with which."""
    if not (reason := overridden(facts.manifest)):
        return []
    said = [error_text(each, words) for each in facts.manifest[CHECKED]["errors"]]
    errors = words("page.between_errors").join(said)
    return [words("page.despite", reason=visible(reason), errors=errors)]


def error_text(error: Mapping[str, Any], words: Words) -> str:
    """An error of the checks, as far as its words are known in the page's language."""
    return flat(words.known("finding", error["what"]))


def leaks(facts: RunFacts, words: Words) -> list[str]:
    """Training rows that ask what items of a reporting evaluation ask."""
    found = [
        shared_text(each, words)
        for each in shared(facts)
        if each["report"] and each["kind"] in GRAVE
    ]
    found += [
        words("data.shared_later", rows=number(rows), data=data, place=f"evaluate.{record.name}")
        for record in facts.records
        if record.role == "report" and record.name not in looked_at(facts)
        for data, rows in (record.shared or {}).items()
        if rows
    ]
    return [words("page.leaked", said=said) for said in found]


def looked_at(facts: RunFacts) -> frozenset[str]:
    """The evaluations that the checks before the run have seen."""
    return frozenset(facts.experiment.evaluate if CHECKED in facts.manifest else ())


def shared(facts: RunFacts) -> list[Mapping[str, Any]]:
    """What training rows and tests have in common, as the checks noted it."""
    return facts.manifest.get(CHECKED, {}).get("shared", [])


def shared_lines(facts: RunFacts, data: str, words: Words) -> list[str]:
    """All of it about one data set; that there is nothing, where rows of it are trained on."""
    if CHECKED not in facts.manifest or not facts.experiment.evaluate:
        return []
    trained = {stage.data.removesuffix(".dev") for stage in facts.experiment.stage.values()}
    own = [each for each in shared(facts) if each["data"].removesuffix(".dev") == data]
    lines = [shared_text(each, words) for each in own]
    asked = any(each["kind"] in GRAVE for each in own)
    return [words("data.shared_none"), *lines] if data in trained and not asked else lines


def shared_text(found: Mapping[str, Any], words: Words) -> str:
    """One thing in common: counts, share and a few names."""
    values = {
        "rows": number(found["rows"]),
        "of": number(found["of"]),
        "share": percent(found["rows"] / found["of"]),
        "exact": number(found["exact"]),
        "data": found["data"],
        "place": found["place"],
        "names": ", ".join(visible(name) for name in found["names"]),
    }
    return words(f"data.shared_{found['kind']}", **values)
