"""Words and numbers in the language of the page: one catalogue file per language in `wording/`.

Findings are worded by their codes. Text of runs (names, errors, answers) is not translated, only
made safe to show.
"""

import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from assay.errors import Finding, InputError
from assay.judge.templates import filled, with_minus

if TYPE_CHECKING:  # it imports numpy, which a line about a file does without
    from assay.judge.intervals import Interval

LANGUAGES = ("en", "zh")
UNSEEN = (
    *range(0x80, 0xA0),
    *(0x200B, 0x2060, 0x2061, 0x2062, 0x2063, 0x2064, 0xFEFF),
    *range(0xE0000, 0xE0080),
    *(0x061C, 0x200E, 0x200F, 0x2028, 0x2029),
    *(*range(0x202A, 0x202F), *range(0x2066, 0x206A)),
    *range(0xD800, 0xE000),
)
"""C1 control codes, what takes no room and joins no letters, what changes the direction of text or
breaks lines, and surrogates."""
CONTROL_PICTURES = {code: 0x2400 + code for code in range(32) if code not in (9, 10)} | {
    127: 0x2421,
    **dict.fromkeys(UNSEEN, 0xFFFD),
    0x9B: 0x241B,
}
"""Control characters as the signs that depict them, the others as U+FFFD."""


ROUNDING = 1e-9
SMALLEST = 1e-12
"""Differences below this come from rounding."""


@dataclass(frozen=True, slots=True)
class Words:
    """The catalogue of one language: sections of templates."""

    lang: str
    sections: Mapping[str, Mapping[str, str]]

    def __call__(self, key: str, /, **values: object) -> str:
        """The text at `section.name` with its gaps filled; KeyError where there is none."""
        section, _, name = key.partition(".")
        return filled(self.sections[section][name], values)

    def or_own(self, section: str, text: str) -> str:
        """`text` in this language where the section has it, else as it is."""
        return self.sections.get(section, {}).get(text, text)

    def title(self, name: str) -> str:
        """What the window calls a column or a field, or what tables call it."""
        return self.or_own("view", name) if name in self.sections["view"] else self(f"table.{name}")

    def ends(self, interval: "Interval", write: Callable[[float], str]) -> str:
        """The limits of an interval."""
        return self("table.interval_text", low=write(interval.low), high=write(interval.high))

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
def words(lang: str = "en") -> Words:
    """The catalogue of a language. Raises InputError."""
    if lang not in LANGUAGES:
        fix = "choose " + " or ".join(LANGUAGES)
        raise InputError(f"no pages in {lang!r}", field="--lang", fix=fix)
    text = (files("assay.pages") / "wording" / f"{lang}.toml").read_text(encoding="utf-8")
    return Words(lang, tomllib.loads(text))


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


def score_text(score: float | None, interval: "Interval | None") -> str:
    """A score beside its interval: in percent where scores run from 0 to 1, else as it is."""
    return percent(score) if interval is None or interval.share else number(score)


def difference_text(difference: float, interval: "Interval") -> str:
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


def signed_number(value: float) -> str:
    """A difference in three digits with its sign, with a true minus sign."""
    return "+0" if abs(value) < SMALLEST else f"{value:+.3g}".replace("-", "−")


def metric_label(metric: str, words: Words) -> str:
    """The name of a metric in the reader's language, or as the file has it."""
    return visible(words.or_own("metric", metric))


ALIKE = {
    **dict.fromkeys(("worse", "equivalent", "undecided", "contradicted"), "better"),
    **dict.fromkeys(("inside_noise", "no_effect_not_shown"), "better"),
    **dict.fromkeys(("cells_not_the_same", "cells_judged"), "cells_inside_noise"),
    "low": "high",
    "falling": "rising",
    "fallback_in_answers": "error_at_full_score",
    "fallback_scores": "unscored",
    "judge_unsure": "judge_below",
}
"""Evidence that is told in the words of another code."""
FIXES = {"worse": "better", "inside_noise": "undecided", "no_effect_not_shown": "undecided"}
FIXES |= {"control_left_out": "left_out", "no_count_gives_it": "not_from_counts"}
"""Fixes that are."""


def evidence(code: str, values: Mapping[str, object], words: Words) -> str:
    """The figures behind a finding; the names that it holds where there are no words for more."""
    template = words.sections["evidence"].get(ALIKE.get(code, code), "")
    return filled(template, values) if template else f"{values.get('names', values.get('why', ''))}"


def worded(finding: Finding, words: Words) -> Finding:
    """A finding with its words in the page's language, by its code; one without has its own."""
    code, values = finding.code, dict(finding.values)
    if not code:
        return finding
    for name, key in values.get("words", {}).items():
        values[name] = words(key, **values)
    fixes = (
        words.sections["fix"].get(FIXES.get(key, str(key)), "")
        for key in values.get("advice", (code,))
    )
    return replace(
        finding,
        what=words(f"finding.{code}", **values),
        evidence=evidence(values.get("template", code), values, words),
        fix="; ".join(filled(text, values) for text in fixes),
    )


def named_tests(methods: Iterable[str], words: Words) -> str:
    """The tests and intervals that comparisons were made with, each once."""
    joint = words.semicolon
    parts = sorted({joint.join(words.or_own("method", p) for p in m.split("; ")) for m in methods})
    return joint.join(parts)
