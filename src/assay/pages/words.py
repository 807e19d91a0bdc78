"""Words and numbers in the language of the page: one catalogue file per language in `wording/`.

Findings and names of tests, which other packages write in English, are translated by the
catalogue. Text of runs (names, errors, answers) is not translated, only made safe to show.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from assay.errors import InputError
from assay.judge.finding_words import FINDINGS, clause
from assay.judge.findings import Finding, filled, with_minus
from assay.judge.health_rules import ENGLISH as HEALTH
from assay.judge.intervals import Interval
from assay.judge.verdict import ENGLISH

LANGUAGES = ("en", "zh")
UNSEEN = (
    *range(0x80, 0xA0),
    *(0x061C, 0x200E, 0x200F, 0x2028, 0x2029),
    *(*range(0x202A, 0x202F), *range(0x2066, 0x206A)),
    *range(0xD800, 0xE000),
)
"""C1 control codes, characters that change the direction of text or break lines, and surrogates."""
CONTROL_PICTURES = {code: 0x2400 + code for code in range(32) if code not in (9, 10)} | {
    127: 0x2421,
    **dict.fromkeys(UNSEEN, 0xFFFD),
    0x9B: 0x241B,
}
"""Control characters as the signs that depict them, the others as U+FFFD."""


ROUNDING = 1e-9


class UnknownLanguage(InputError):
    """There is no catalogue of this language."""


@dataclass(frozen=True, slots=True)
class Words:
    """The catalogue of one language: sections of templates."""

    lang: str
    sections: Mapping[str, Mapping[str, str]]

    def __call__(self, key: str, /, **values: object) -> str:
        """The text at `section.name` with its gaps filled; KeyError where there is none."""
        section, _, name = key.partition(".")
        return filled(self.sections[section][name], values)

    def known(self, section: str, text: str) -> str:
        """`text` in this language where the catalogue has it, else as it is.

        A key of the catalogue may have gaps; what `text` has there is looked up in turn.
        """
        exact = self.sections[section].get(text)
        if exact is not None:
            return exact
        for key, template in self.sections[section].items():
            found = _pattern(key).fullmatch(text) if "{" in key else None
            if found:
                values = {gap: self.known(section, said) for gap, said in found.groupdict().items()}
                return filled(template, values)
        return text

    def within(self, text: str) -> str:
        """A text in brackets behind another."""
        marks = self.sections["punctuation"]
        return f"{marks['open']}{text}{marks['close']}"

    @property
    def verdicts(self) -> Mapping[str, str]:
        """Templates for `judge.verdict.explain`."""
        return self.sections["verdict"]

    @property
    def colon(self) -> str:
        """What stands between a thing and what is said of it."""
        return self.sections["punctuation"]["colon"]

    @property
    def semicolon(self) -> str:
        """What stands between clauses."""
        return self.sections["punctuation"]["semicolon"]

    @property
    def comma(self) -> str:
        """What stands between a clause and what belongs to it."""
        return self.sections["punctuation"]["comma"]

    @property
    def listing(self) -> str:
        """What stands between the members of a list."""
        return self.sections["punctuation"]["listing"]


@cache
def _pattern(key: str) -> re.Pattern[str]:
    """The pattern of a text with gaps: each gap is some text in one line."""
    parts = re.split(r"\{(\w+)\}", key)
    gaps = [f"(?P<{p}>.+)" if n % 2 else re.escape(p) for n, p in enumerate(parts)]
    return re.compile("".join(gaps))


@cache
def words(lang: str = "en") -> Words:
    """The catalogue of a language. Raises UnknownLanguage."""
    if lang not in LANGUAGES:
        fix = "choose " + " or ".join(LANGUAGES)
        raise UnknownLanguage(f"no pages in {lang!r}", field="--lang", fix=fix)
    text = (files("assay.pages") / "wording" / f"{lang}.toml").read_text(encoding="utf-8")
    sections = tomllib.loads(text)
    # The English sentences of verdicts and health rules belong to `judge`.
    return Words(lang, _with_identity_rules({"verdict": ENGLISH, **HEALTH, **sections}))


def _with_identity_rules(sections: dict[str, Any]) -> dict[str, Any]:
    """The sections, with what identity rules say of tables: the words of the health rules."""
    shared = {"finding": "health", "evidence": "health_evidence", "advice": "health_advice"}
    for own, health in shared.items():
        told = {text: sections[health][key] for key, text in HEALTH[health].items()}
        sections[own] = {**told, **sections[own]}
    return sections


def in_language(file: Path, lang: str) -> Path:
    """The page's file in a language: `report.html` in English, `report.zh.html` in Chinese."""
    return file if lang == "en" else file.with_name(f"{file.stem}.{lang}{file.suffix}")


def visible(text: str) -> str:
    """Text that a model or a file wrote, with nothing in it that moves a cursor or turns lines."""
    return text.translate(CONTROL_PICTURES)


def flat(text: str) -> str:
    """The same on one line: each run of white space is a space."""
    return " ".join(visible(text).split())


def percent(share: float | None) -> str:
    """A share of one in percent with one decimal, "–" for none; what is no share as it is."""
    if share is None:
        return "–"
    return f"{share * 100:.1f}%" if -ROUNDING <= share <= 1 + ROUNDING else number(share)


def points(difference: float) -> str:
    """A difference of shares in signed points with one decimal, with a true minus sign."""
    return with_minus(f"{difference * 100:+.1f}")


def score_text(score: float | None, interval: Interval | None) -> str:
    """A score beside its interval: in percent where scores run from 0 to 1, else as it is."""
    return percent(score) if interval is None or interval.share else number(score)


def difference_text(difference: float, interval: Interval) -> str:
    """A difference beside its interval: in points where scores run from 0 to 1, else as it is."""
    if interval.share:
        return points(difference)
    return number(difference) if difference < 0 else f"+{number(difference)}"


def number(value: float | None) -> str:
    """Any number in three or four digits, "–" for none."""
    if value is None:
        return "–"
    if value == int(value) and abs(value) < 1e6:
        return with_minus(f"{int(value):,}")
    small = abs(value) < 1e-3 or abs(value) >= 1e6
    return with_minus(f"{value:.3g}" if small else f"{value:.4g}")


def translated(finding: Finding, words: Words) -> Finding:
    """A finding in the page's language: by its code and values; without a code it is a text of
    somebody else."""
    if not finding.code:
        return finding
    told = {n: clause(value, words.sections["evidence"]) for n, value in finding.values.items()}
    templates = zip(("finding", "evidence", "advice"), FINDINGS[finding.code], strict=True)
    said = [filled(words.sections[section].get(text, text), told) for section, text in templates]
    return replace(finding, what=said[0], evidence=said[1], fix=said[2])


def named_tests(methods: Iterable[str], words: Words) -> str:
    """The tests and intervals that comparisons were made with, each once."""
    joint = words.semicolon
    parts = sorted({joint.join(words.known("method", p) for p in m.split("; ")) for m in methods})
    return joint.join(parts)
