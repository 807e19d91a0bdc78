"""A run's answers on BFCL by category, class, number of turns and type of error, and their tables.

A category that was not run is absent, never 0, and so is the score of a group that needs it. The
answers to a scenario of a memory category count as those to its questions, as upstream counts them.
Only evaluations that report count. Upstream counts a multi-turn category that was not run as 0 in
the overall mean, so that after one category alone "Overall" is a quarter of it.
`data_multi_turn.csv` does the same, for programs that expect that file; the other files never do.
"""

import csv
import functools
import io
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

from assay.data.files import atomic_write_text
from assay.data.row import Row
from assay.errors import InputError
from assay.judge.averages import average
from assay.judge.intervals import Interval, score_interval, wilson
from assay.judge.scores import ItemScores, item_scores
from assay.tasks.tools.agentic import AGENTIC
from assay.tasks.tools.multi_turn import MULTI_TURN
from assay.tasks.tools.single_turn import ENTRIES, FORMAT_SENSITIVITY, entries, spread


@dataclass(frozen=True, slots=True)
class Group:
    """An average of categories and of groups."""

    name: str
    parts: tuple["Group | str", ...]
    weights: tuple[float, ...] = ()
    """Of the parts; empty where all have the same."""
    by_items: bool = False
    """Whether a category weighs as many items as it was measured on."""


SIMPLE = Group("non_live_simple", ("simple_python", "simple_java", "simple_javascript"))
NON_LIVE = Group("non_live", (SIMPLE, "multiple", "parallel", "parallel_multiple"))
LIVE = Group(
    "live",
    ("live_simple", "live_multiple", "live_parallel", "live_parallel_multiple"),
    by_items=True,
)
HALLUCINATION = Group("hallucination", ("irrelevance", "live_irrelevance"))
SEVERAL_TURNS = Group(
    "multi_turn",
    ("multi_turn_base", "multi_turn_miss_func", "multi_turn_miss_param", "multi_turn_long_context"),
)
WEB_SEARCH = Group("web_search", ("web_search_base", "web_search_no_snippet"))
MEMORY = Group("memory", ("memory_kv", "memory_vector", "memory_rec_sum"))
AGENTS = Group("agentic", (WEB_SEARCH, MEMORY))
WEIGHTS = {AGENTS: 40.0, SEVERAL_TURNS: 30.0, LIVE: 10.0, NON_LIVE: 10.0, HALLUCINATION: 10.0}
"""The groups of the overall score, in percent of it."""
OVERALL = Group("overall", tuple(WEIGHTS), tuple(WEIGHTS.values()))
GROUPS = (*WEIGHTS, SIMPLE, WEB_SEARCH, MEMORY)


@dataclass(frozen=True, slots=True)
class GroupScore:
    """The score of a group at one checkpoint."""

    group: Group
    missing: tuple[str, ...]
    """The categories without a score; with any, the group has none."""
    mean: float | None = None
    interval: Interval | None = None
    items: int = 0

    @property
    def name(self) -> str:
        """The group's name."""
        return self.group.name


def group_score(group: Group, scores: Mapping[str, ItemScores]) -> GroupScore:
    """The score of a group from those of the categories that have one.

    Items of one source are resampled together, whatever categories they are in.
    """
    names = categories_of(group)
    missing = tuple(name for name in names if name not in scores)
    if missing:
        return GroupScore(group, missing)
    weights = _weights(group, {name: len(scores[name].item_ids) for name in names})
    whole = average([scores[name] for name in names], weights=[weights[name] for name in names])
    return GroupScore(group, (), whole.mean, whole.interval, whole.items)


def categories_of(group: Group) -> tuple[str, ...]:
    """The categories of a group and of the groups in it."""
    found = [(p,) if isinstance(p, str) else categories_of(p) for p in group.parts]
    return tuple(name for names in found for name in names)


def _weights(group: Group, items: Mapping[str, int]) -> dict[str, float]:
    """How much each category counts; all together 1."""
    shares: Sequence[float] = group.weights or [1.0] * len(group.parts)
    if group.by_items:
        shares = [items[name] for name in categories_of(group)]
    found: dict[str, float] = {}
    for part, share in zip(group.parts, shares, strict=True):
        own = {part: 1.0} if isinstance(part, str) else _weights(part, items)
        found |= {name: weight * share / sum(shares) for name, weight in own.items()}
    return found


PREFIX = "bfcl/"
Line = Mapping[str, Any]
Reported = tuple[str, str, str, Sequence[Line]]
"""Benchmark, evaluation, checkpoint and its answers, as `runs.history` gives them."""


@dataclass(frozen=True)
class CategoryAnswers:
    """The answers of one category at one checkpoint."""

    category: str
    lines: tuple[Line, ...]
    """The record's answers, an item as often as there are repeats."""
    of: int
    """Entries that the category has; fewer may have been taken."""
    rows: Mapping[str, Row]
    """The category's entries by id."""

    @cached_property
    def scores(self) -> ItemScores | None:
        """None where every answer abstained."""
        return self._scores(self.lines)

    @property
    def refused(self) -> int:
        """Answers with messages or calls that were not executed."""
        return sum(json.loads(line["parts"]).get("refused", 0) > 0 for line in self.lines)

    def part(self, items: Iterable[str]) -> ItemScores | None:
        """The scores of some items; None where they have none."""
        kept = frozenset(items)
        return self._scores([line for line in self.lines if line["item_id"] in kept])

    def _scores(self, lines: Sequence[Line]) -> ItemScores | None:
        if all(line["score"] is None for line in lines):
            return None
        # One scene of the multi-turn categories is written in all four.
        scenes = {id: row.conversation or id for id, row in self.rows.items()}
        clusters = {line["item_id"]: scenes[line["item_id"]] for line in lines}
        return item_scores(((x["item_id"], x["repeat"], x["score"]) for x in lines), clusters)


@dataclass(frozen=True, slots=True)
class Share:
    """A rate over some of the answers of a category."""

    by: str
    """"class", "turns" or "error"."""
    value: str
    rate: float
    """Of "class" and "turns" the score of those items, of "error" the share of the answers."""
    interval: Interval
    count: int
    """Items, or of "error" the answers that have it."""


@dataclass(frozen=True, slots=True)
class BfclScores:
    """One checkpoint on all categories that it was measured on."""

    model: str
    """RUN@CHECKPOINT."""
    categories: Mapping[str, CategoryAnswers]
    missing: Mapping[str, str] = field(default_factory=dict)
    """Why categories could not be run."""

    def group(self, group: Group) -> GroupScore:
        """The score of a group of categories."""
        known = {name: each.scores for name, each in self.categories.items()}
        return group_score(group, {name: each for name, each in known.items() if each is not None})

    def why(self, category: str) -> str:
        """Why a category has no score; "" where it has one."""
        if category not in self.categories:
            return self.missing.get(category, "not run")
        lines = self.categories[category].lines
        reasons = Counter(line["why"] for line in lines if line["score"] is None)
        if self.categories[category].scores is not None:
            return ""
        return f"every answer abstained: {reasons.most_common(1)[0][0]}"

    def spread(self) -> tuple[float, float] | None:
        """See `single_turn.spread`; None where format sensitivity was not run."""
        measured = self.categories.get(FORMAT_SENSITIVITY)
        if measured is None or measured.scores is None:
            return None
        found = zip(measured.scores.item_ids, measured.scores.item_means, strict=True)
        return spread({item: float(mean) for item, mean in found if mean == mean})


def is_category(benchmark: str) -> bool:
    """Whether a benchmark is a category of BFCL."""
    return benchmark.startswith(PREFIX) and benchmark.removeprefix(PREFIX) in ENTRIES


def bfcl_scores(
    run: str, reported: Iterable[Reported], missing: Mapping[str, str] = MappingProxyType({})
) -> list[BfclScores]:
    """Every checkpoint that a run was measured with on a category of BFCL.

    `reported` are the run's answers to benchmarks that are categories (`is_category`); `missing`
    says of benchmarks why they could not be run. Raises
    InputError without any, and where two evaluations are of one category.
    """
    found: dict[str, dict[str, CategoryAnswers]] = {}
    names: dict[str, str] = {}
    for benchmark, evaluation, checkpoint, lines in reported:
        category = benchmark.removeprefix(PREFIX)
        if names.setdefault(category, evaluation) != evaluation:
            problem = f"{run} measured {benchmark} as {names[category]!r} and {evaluation!r}"
            raise InputError(problem, fix="a table has one evaluation of each category")
        rows = _rows(category)
        if category in AGENTIC:
            lines = [part for line in lines for part in _of_questions(category, line)]
        measured = CategoryAnswers(category, tuple(lines), len(rows), rows)
        found.setdefault(checkpoint, {})[category] = measured
    if not found:
        raise InputError(f"{run} was measured on no category of BFCL", fix='role = "report"')
    why = {name.removeprefix(PREFIX): text for name, text in missing.items()}
    return [BfclScores(f"{run}@{checkpoint}", found[checkpoint], why) for checkpoint in found]


@functools.cache
def _rows(category: str) -> Mapping[str, Row]:
    """The entries of a category by id; agentic items by the ids of their questions."""
    rows = entries(category)
    if category not in AGENTIC:
        return {row.id: row for row in rows}
    return {question: replace(row, conversation=row.id) for row in rows for question in row.gold}


def _of_questions(category: str, line: Line) -> list[Line]:
    """The answer to an agentic item as one to each of its questions."""
    parts, errors = json.loads(line["parts"]), json.loads(line.get("facts") or "{}")
    refused = parts.pop("refused", 0.0)
    if line["score"] is None:
        asked = [id for id, row in _rows(category).items() if row.id == line["item_id"]]
        parts = dict.fromkeys(asked)
    return [
        {
            **line,
            "item_id": question,
            "score": score,
            "error": errors.get(question, ""),
            "parts": json.dumps({"refused": refused if n == 0 else 0.0}),
        }
        for n, (question, score) in enumerate(parts.items())
    ]


def breakdown(measured: CategoryAnswers) -> list[Share]:
    """The category's scores by class and number of turns where its entries have any, and errors.

    An entry counts for each of its classes.
    """
    return [
        *_by("class", measured, lambda row: row.extra["entry"]["involved_classes"]),
        *_by("turns", measured, lambda row: [len(row.extra["entry"]["question"])]),
        *_errors(measured),
    ]


def _by(by: str, measured: CategoryAnswers, values_of: Any) -> list[Share]:
    groups: dict[Any, set[str]] = {}
    for item in {line["item_id"] for line in measured.lines}:
        row = measured.rows[item]
        for value in values_of(row) if "entry" in row.extra else ():
            groups.setdefault(value, set()).add(item)
    shares = []
    for value, items in sorted(groups.items()):
        scores = measured.part(items)
        if scores is not None:
            interval = score_interval(scores)
            shares.append(Share(by, str(value), scores.mean, interval, len(scores.item_ids)))
    return shares


def _errors(measured: CategoryAnswers) -> list[Share]:
    judged = [line for line in measured.lines if line["score"] is not None]
    counts = Counter(line["error"] for line in judged if line["error"])
    return [
        Share("error", error, count / len(judged), wilson(count, len(judged)), count)
        for error, count in counts.most_common()
    ]


NOT_RUN = "N/A"
SPREADS = ("format_sensitivity_max_delta", "format_sensitivity_std")
"""What upstream calls the two figures of `BfclScores.spread`, in points."""
UPSTREAM = "data_multi_turn.csv"
CATEGORIES = "bfcl_categories.csv"
BREAKDOWN = "bfcl_breakdown.csv"
GROUP_SCORES = "bfcl_overall.csv"
HEADER = ["Rank", "Model", "Multi Turn Overall Acc", "Base", "Miss Func", "Miss Param"]
HEADER += ["Long Context"]
COLUMNS = ["Model", "Category", "Score", "Low", "High", "Interval", "Items", "Of", "Repeats"]
COLUMNS += ["Abstained", "Refused", "Why"]
GROUP_COLUMNS = ["Model", "Group", "Weight", "Score", "Low", "High", "Interval", "Items", "Missing"]
SHARES = ["Model", "Category", "By", "Value", "Rate", "Low", "High", "Interval", "Count"]

Table = Sequence[Sequence[str]]


def write_bfcl(found: Sequence[BfclScores], folder: Path) -> list[Path]:
    """The four files, in a folder that is made where it is absent.

    Raises InputError when a file is in its place.
    """
    if folder.exists() and not folder.is_dir():
        raise InputError("is a file", file=folder, field="--bfcl", fix="name a folder")
    folder.mkdir(parents=True, exist_ok=True)
    texts = {
        UPSTREAM: upstream_table(found),
        GROUP_SCORES: _csv([GROUP_COLUMNS, *(line for s in found for line in _groups(s))]),
        CATEGORIES: _csv([COLUMNS, *(line for s in found for line in _categories(s))]),
        BREAKDOWN: _csv([SHARES, *(line for s in found for line in _breakdown(s))]),
    }
    for name, text in texts.items():
        atomic_write_text(folder / name, text)
    return [folder / name for name in texts]


def upstream_table(found: Sequence[BfclScores]) -> str:
    """The text of upstream's file (eval_runner_helper.generate_leaderboard_csv)."""
    table = []
    for scores in found:
        means = [_mean(scores, category) for category in MULTI_TURN]
        overall = sum(mean or 0.0 for mean in means) / len(means)
        table.append([scores.model, overall, *means])
    return "\n".join(",".join(line) for line in [HEADER, *_ranked(table)])


def bfcl_result(found: Sequence[BfclScores]) -> list[dict[str, Any]]:
    """The scores as plain values; None is a category that was not run, and a group without it."""
    return [
        {
            "model": scores.model,
            "multi_turn_overall": scores.group(SEVERAL_TURNS).mean,
            "groups": {
                each.name: {"score": each.mean, "missing": each.missing}
                for each in map(scores.group, (OVERALL, *GROUPS))
            },
            "format_sensitivity": dict(zip(SPREADS, scores.spread() or (None, None), strict=True)),
            "categories": {category: _mean(scores, category) for category in ENTRIES},
            "missing": dict(scores.missing),
            "breakdown": {
                category: [asdict(share) for share in breakdown(measured)]
                for category, measured in scores.categories.items()
            },
        }
        for scores in found
    ]


def bfcl_lines(found: Sequence[BfclScores]) -> list[str]:
    """The scores as text, a line for each category and each group of each checkpoint."""
    lines = []
    for scores in found:
        for category, measured in scores.categories.items():
            if measured.scores is None:
                lines.append(f"{scores.model} {category}: {NOT_RUN}, {scores.why(category)}")
                continue
            interval = score_interval(measured.scores)
            lines.append(
                f"{scores.model} {category}: {measured.scores.mean:.1%} ({interval.low:.1%} to "
                f"{interval.high:.1%}), {len(measured.scores.item_ids)} of {measured.of} items"
            )
        lines += [
            f"{scores.model} {category}: {NOT_RUN}, {why}"
            for category, why in scores.missing.items()
            if category not in scores.categories
        ]
        if (found_spread := scores.spread()) is not None:
            delta, deviation = found_spread
            said = f"formats differ by up to {delta} points (standard deviation {deviation})"
            lines.append(f"{scores.model} {FORMAT_SENSITIVITY}: {said}")
        lines += [f"{scores.model} {_said(scores.group(each))}" for each in (*GROUPS, OVERALL)]
    return lines


def _said(found: GroupScore) -> str:
    if found.mean is None or found.interval is None:
        return f"{found.name}: {NOT_RUN}, without {', '.join(found.missing)}"
    limits = f"({found.interval.low:.1%} to {found.interval.high:.1%})"
    return f"{found.name}: {found.mean:.1%} {limits}"


def _mean(scores: BfclScores, category: str) -> float | None:
    measured = scores.categories.get(category)
    return measured.scores.mean if measured is not None and measured.scores is not None else None


def _ranked(table: Iterable[Sequence[Any]]) -> list[list[str]]:
    """Best first, what has no overall score last; numbers as upstream writes them."""
    ordered = sorted(table, key=lambda line: -1.0 if line[1] is None else line[1], reverse=True)
    return [
        [str(rank), line[0], *(NOT_RUN if x is None else f"{x * 100:.2f}%" for x in line[1:])]
        for rank, line in enumerate(ordered, start=1)
    ]


def _categories(scores: BfclScores) -> list[list[str]]:
    return [_category(scores, name, scores.categories.get(name)) for name in ENTRIES]


def _groups(scores: BfclScores) -> list[list[str]]:
    """The overall score, its groups with their weights in it, and what upstream shows beside."""
    lines, weights = [], {**WEIGHTS, OVERALL: 100.0}
    for group in (OVERALL, *GROUPS):
        found = scores.group(group)
        known = [NOT_RUN] * 4
        if found.mean is not None and found.interval is not None:
            known = [f"{found.mean:.6f}", *_limits(found.interval)]
        weight = f"{weights[group]:g}" if group in weights else ""
        counts = [str(found.items) if found.mean is not None else "", " ".join(found.missing)]
        lines.append([scores.model, group.name, weight, *known, *counts])
    spread = scores.spread()
    without = "" if spread else FORMAT_SENSITIVITY
    for name, value in zip(SPREADS, spread or (NOT_RUN, NOT_RUN), strict=True):
        lines.append([scores.model, name, "0", str(value), *[""] * 4, without])
    return lines


def _category(scores: BfclScores, category: str, measured: CategoryAnswers | None) -> list[str]:
    model, why = scores.model, scores.why(category)
    if measured is None:
        return [model, category, *[NOT_RUN] * 4, "0", str(len(_rows(category))), *[""] * 3, why]
    abstained = sum(line["score"] is None for line in measured.lines)
    known = _known(measured.scores) if measured.scores is not None else [NOT_RUN] * 4
    items = len({line["item_id"] for line in measured.lines})
    repeats = len({line["repeat"] for line in measured.lines})
    counts = [items, measured.of, repeats, abstained, measured.refused]
    return [model, category, *known, *map(str, counts), why]


def _known(scores: ItemScores) -> list[str]:
    return [f"{scores.mean:.6f}", *_limits(score_interval(scores))]


def _limits(interval: Interval) -> list[str]:
    return [f"{interval.low:.6f}", f"{interval.high:.6f}", interval.method]


def _breakdown(scores: BfclScores) -> list[list[str]]:
    return [
        [
            scores.model,
            category,
            share.by,
            share.value,
            f"{share.rate:.6f}",
            *_limits(share.interval),
            str(share.count),
        ]
        for category, measured in scores.categories.items()
        for share in breakdown(measured)
    ]


def _csv(table: Table) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(table)
    return text.getvalue()
