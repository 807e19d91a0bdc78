"""Compares arms item by item: all pairs, corrected as one family, in one table.

Used for checkpoints of one run, runs of a lab and files of other tools. Also gathers the evidence
on arms with the same answers and on contradictory answers. Fairness is decided in `fairness`,
figures and verdicts in `judge`; nothing is printed.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from assay.compare.arm import (
    Arm,
    Provenance,
    agreement,
    identical,
    load_arm,
    one_metric,
    picked,
    scored_apart,
    weights,
    with_seeds,
)
from assay.compare.fairness import (
    DECLARED,
    Terms,
    check_fair,
    compared_parts,
    contradictions,
    find_differences,
    idle_allowances,
    idle_factors,
    remarks,
)
from assay.compare.table import ComparisonTable, Flips, Line, Pairing, judged_by
from assay.errors import Finding, InputError, finding, worst_first
from assay.judge.arms import SampledScores, arm_interval, sampled_scores
from assay.judge.arms import compare_arms as compare_methods
from assay.judge.averages import compare_harmonic
from assay.judge.confounds import Confound
from assay.judge.families import adjust_family
from assay.judge.identity import MANY_FALLBACKS, contradictory_answers, same_answers
from assay.judge.intervals import Interval, score_interval
from assay.judge.paired import compare, score_range
from assay.judge.scores import ItemScores, on_one_scale
from assay.judge.verdict import FEW_UNSCORED, Comparison, not_comparable, with_lower_better
from assay.runs.history import History
from assay.runs.records import EvaluationRecord
from assay.runs.run_directory import RunDirectory

LOWER = (
    "wer cer mer ter loss nll perplexity ppl bpb mae mse rmse brier ece latency error errors err"
)
LOWER += " time duration seconds cost fail failed failure failures timeout incorrect wrong"
HIGHER = "score scores acc accuracy reward rewards em f1 bleu sacrebleu chrf rouge rouge1 rouge2"
HIGHER += " rougel rougelsum meteor bertscore precision recall mcc auc auroc ndcg mrr match pass"
HIGHER += " passed correct valid success solved resolved win wins includes likelihood exact"
NEUTRAL = "rate mean avg average median max total sum norm char word byte token per at k n strict"
NEUTRAL += " flexible extract extracted level prompt inst loose none macro micro weighted test eval"
NEUTRAL += " val validation dev ms s sec data metric info metrics value result results number"
DIRECTIONS = {**dict.fromkeys(LOWER.split(), False), **dict.fromkeys(HIGHER.split(), True)}


def known_direction(metric: str) -> bool | None:
    """Whether higher is better by the words of a metric's name; None where one is not known or they
    do not agree.

    `WordErrorRate`, `word_error_rate` and `word error-rate` are alike, as are `pass1` and `pass`.
    """
    parts = [part for part in re.split(r"[\W_]+", metric.rpartition("=")[2] or metric) if part]
    capitals = re.compile(r"(?<=[a-z])(?=[A-Z])")
    split = ([part] if part.lower() in DIRECTIONS else capitals.split(part) for part in parts)
    words = [word.lower() for words in split for word in words]
    words = [word if word in DIRECTIONS else word.rstrip("0123456789") for word in words]
    ways = {DIRECTIONS[word] for word in words if word in DIRECTIONS}
    others = [word for word in words if word and word not in DIRECTIONS]
    return ways.pop() if len(ways) == 1 and {*others} <= {*NEUTRAL.split()} else None


def lower_is_better(arms: Iterable[Arm]) -> bool:
    """Whether a lower score is better in all arms.

    What one file says holds for the others of the metric. Raises InputError where none says
    it, or two say different things.
    """
    arms = list(arms)
    foreign = [arm.result for arm in arms if arm.result is not None]
    directions = {result.higher_is_better for result in foreign} - {None}
    if len(foreign) < len(arms):
        directions.add(True)
    directions = directions or {known_direction(result.metric) for result in foreign} - {None}
    fix = "say it with --higher-is-better or --lower-is-better"
    if len(directions) == 1:
        return directions == {False}
    problem = (
        "is better high by one file, low by another" if directions else "may be better high or low"
    )
    metric = repr(foreign[0].metric)
    raise InputError(f"{metric} {problem}, so there is no verdict", field="metric", fix=fix)


def identity_findings(arms: Sequence[Arm]) -> list[Finding]:
    """Findings of the identity rules for the arms of one table, worst first."""
    control = arms[0].provenance
    greedy = control is None or control.record.sampling.get("temperature") == 0
    findings = []
    for one, other in identical(arms):
        if scored_apart(one, other):
            continue
        same, share = None, None
        if one.provenance is not None and other.provenance is not None:
            same, share = weights(one.provenance, other.provenance)
        counts = {"items": len(one.scores.item_ids), "answers": len(one.outputs)}
        counts["distinct"] = len(set(one.outputs.values()))
        findings.append(same_answers(one.name, other.name, counts, same, share, greedy))
    for arm in arms:
        findings += contradictory_answers(arm.name, arm.answers)
    return worst_first(findings)


UNKNOWN = "?"
MIXED = Confound("evaluation.metric", "official", "fallback", "confound")
"""Scores of one record that come from two metrics."""


def compare_checkpoints(
    run: RunDirectory, evaluation: str, control: str = "base", others: Sequence[str] | None = None
) -> ComparisonTable:
    """Checkpoints of one run on one evaluation; `others` are all measured ones when omitted.

    Each is compared with the control and with the last one of the stage before; all p-values of
    the table are one family. Raises InputError, DamagedFile, and what `judge.paired.compare`
    raises. Where a fallback metric scored some of the answers, none are comparable.
    """
    history = History(run)
    record = history.record(evaluation)
    if others is None:
        others = [name for name in history.measured(record) if name != control]
    arms = [load_arm(Provenance(run, name, record), name) for name in (control, *others)]
    pairs = [(control, name) for name in others]
    for place, name in enumerate(others):
        stage = name.partition(".")[0]
        before = [each for each in others[:place] if each.partition(".")[0] != stage]
        pairs += [(each, name) for each in before[-1:]]
    judged = judge_pairs(pairs, arms, {} if one_metric(arms) else dict.fromkeys(others, (MIXED,)))
    table = make_table(arms, judged, findings=identity_findings(arms))
    return replace(table, picked=picked(arms))


def compare_arms(
    arms: Sequence[Arm], terms: Terms = DECLARED, findings: Sequence[Finding] = ()
) -> ComparisonTable:
    """All arms against the first, one family, item by item; `findings` are shown with the table.

    An undeclared difference makes the verdict "not comparable". Raises InputError for what is never
    compared (see `fairness`), InputError for an accepted difference that is none,
    InputError for a metric that may be better high or low.
    """
    check_distinct([arm.name for arm in arms], "run")
    findings = [*findings, *check_fair([*arms, *(s for arm in arms for s in arm.seeds[1:])])]
    if len(arms) == 1 and arms[0].result is not None:  # a file alone is shown with its score
        return make_table(arms, {}, (), [*findings, *remarks(arms[0].result, arms[0].name)])
    scores = iter(on_one_scale(*(each.scores for arm in arms for each in arm.members)))
    scaled = [[replace(each, scores=next(scores)) for each in arm.members] for arm in arms]
    pooled = [with_seeds(seeds, arm.name) for seeds, arm in zip(scaled, arms, strict=True)]
    control, *others = arms = pooled
    differing: dict[str, list[Confound]] = {}
    for arm in others:
        wrong, told = contradictions(control, arm)
        differing[arm.name] = [*wrong, *find_differences(control, arm, terms)]
        findings += [each for each in told if each not in findings]
    lower = lower_is_better(arms)
    pairings = judge_pairs([(control.name, arm.name) for arm in others], arms, differing, lower)
    every = {(c.path, str(c.other)): c for confounds in differing.values() for c in confounds}
    known = compared_parts(arms)
    if known is None:
        findings += idle_allowances(terms.allow, list(every.values()))
    for arm in others:
        findings += idle_factors(control, arm, differing[arm.name])
    table = make_table(arms, pairings, tuple(every.values()), [*findings, *identity_findings(arms)])
    return replace(table, compared=known, picked=picked(arms))


def check_distinct(names: Sequence[str], kind: str) -> None:
    """Raise InputError where two arms are the same; `kind` is what they are in words."""
    if len(set(names)) < len(names):
        raise InputError(f"a {kind} cannot be compared with itself", fix=f"name two {kind}s")


def judge_pairs(
    pairs: Iterable[tuple[str, str]],
    arms: Sequence[Arm],
    differing: Mapping[str, Sequence[Confound]],
    lower: bool = False,
) -> dict[tuple[str, str], Pairing]:
    """Every pair of names compared, corrected as one family; `differing` has the differences of
    each other arm to the control, of which confounds make a pair not comparable; `lower` scores
    may be the better ones.
    """
    named = {arm.name: arm for arm in arms}
    raw = {}
    for control, other in pairs:
        comparison = _judged(named[control], named[other])
        comparison = with_lower_better(comparison) if lower else comparison
        raw[control, other] = _unless_confounded(comparison, differing.get(other, ()))
    pairings = {}
    for (control, other), comparison in adjust_family(raw).items():
        one, two = named[control], named[other]
        flips = _flips(one.scores, two.scores, -1 if comparison.lower_is_better else 1)
        pairings[control, other] = Pairing(control, other, comparison, flips, agreement(one, two))
    return pairings


def compared_sides(
    control: Sequence[Arm],
    other: Sequence[Arm],
    differing: Sequence[Confound],
    ratios: Sequence[float],
) -> Comparison:
    """Two sides of one arm each; with `ratios`, the baseline score of each benchmark, of one arm
    for each, by the harmonic mean of their ratios."""
    if not ratios:
        return _unless_confounded(_judged(control[0], other[0]), differing)
    before, after = ([arm.scores for arm in side] for side in (control, other))
    return _unless_confounded(compare_harmonic(before, after, ratios), differing)


def _unless_confounded(comparison: Comparison, differing: Sequence[Confound]) -> Comparison:
    confounds = [each.path for each in differing if each.kind == "confound"]
    return not_comparable(comparison, confounds) if confounds else comparison


def _judged(control: Arm, other: Arm) -> Comparison:
    if control.seeds and other.seeds:
        seeds = on_one_scale(*(arm.scores for arm in (*control.seeds, *other.seeds)))
        split = len(control.seeds)
        return compare_methods(seeds[:split], seeds[split:])
    before, after = on_one_scale(control.scores, other.scores)
    comparison = compare(before, after)
    if not control.seeds and not other.seeds:
        return comparison
    return replace(
        comparison, method=f"{comparison.method}; seeds as repeats: these runs, not the method"
    )


def _flips(control: ItemScores, other: ItemScores, sign: int) -> Flips:
    """Items scored in both, in the control's order, by the sign of their change times `sign`."""
    after = dict(zip(other.item_ids, other.item_means, strict=True))
    change = {
        item: sign * (after[item] - before)
        for item, before in zip(control.item_ids, control.item_means, strict=True)
        if item in after
    }
    return Flips(
        tuple(item for item, delta in change.items() if delta > 0),
        tuple(item for item, delta in change.items() if delta < 0),
        tuple(item for item, delta in change.items() if delta == 0),
    )


def make_table(
    arms: Sequence[Arm],
    pairings: Mapping[tuple[str, str], Pairing],
    differing: tuple[Confound, ...] = (),
    findings: Sequence[Finding] = (),
) -> ComparisonTable:
    """The table of all arms, the control first."""
    control, lines = arms[0], []
    record = _record(control)
    # All lines on one scale: percent beside plain numbers would read as two.
    share = all(arm.scores.bounds == (0.0, 1.0) for arm in arms)
    for arm in arms:
        origin = arm.provenance
        previous = [p for (before, other), p in pairings.items() if other == arm.name]
        lines.append(
            Line(
                name=arm.name,
                score=arm.scores.mean,
                interval=replace(interval_of(arm), share=share),
                items=len(arm.scores.item_ids),
                repeats=arm.scores.repeats,
                abstained=arm.scores.missing,
                possible=score_range(arm.scores),
                to_control=pairings.get((control.name, arm.name)),
                to_previous=next((p for p in previous if p.control != control.name), None),
                clusters=arm.scores.sources,
                part_of=len(record.items) if arm.scores.part else None,
                address="" if origin is None else origin.address,
                file=arm.file,
                run=None if origin is None else origin.run,
                limits={} if origin is None else origin.record.sampling,
                truncated=arm.truncated,
                sampled=sampled(arm),
                seeds=len(arm.members),
                outcomes=Counter(o for member in arm.members for o in member.outcomes),
            )
        )
    judge = judged_by(arms)
    every_finding = [*findings, *(() if judge is None else judge.findings)]
    unscored = [(line.name, line.abstained, line.items * line.repeats) for line in lines]
    every_finding += _shares("unscored", unscored, FEW_UNSCORED)
    fallbacks = [(arm.name, arm.fallbacks, len(arm.judged)) for arm in arms]
    every_finding += _shares("fallback_scores", fallbacks, MANY_FALLBACKS)
    return ComparisonTable(record, tuple(lines), differing, tuple(every_finding), judge=judge)


def sampled(arm: Arm) -> SampledScores | None:
    """The figures of repeats; None where there is one, or where they are greedy and thus alike."""
    origin = arm.provenance
    greedy = origin is not None and origin.record.sampling.get("temperature") == 0
    if greedy or min(each.scores.repeats for each in arm.members) < 2:
        return None
    return sampled_scores([each.scores for each in arm.members])


def _record(control: Arm) -> EvaluationRecord:
    """The evaluation of the table, as far as it is known."""
    if isinstance(control.origin, Provenance):
        return control.origin.record
    return EvaluationRecord(
        name=control.origin.metric or "score",
        benchmark=control.benchmark or control.format,
        role="report",
        items=control.scores.item_ids,
        items_hash="",
        repeats=control.scores.repeats,
        sampling={},
        rendering="",
        checker=control.checker or UNKNOWN,
        options={},
        seed=0,
    )


def interval_of(arm: Arm) -> Interval:
    """Interval of a score; with seeds as a random factor if there are several."""
    if arm.seeds:
        return arm_interval([seed.scores for seed in arm.seeds])
    return score_interval(arm.scores)


def _shares(code: str, counts: Iterable[tuple[str, int, int]], most: float) -> list[Finding]:
    """A warning for each name with more than a share of its answers counted."""
    return [
        finding(code, "warning", name=name, share=f"{n / total:.1%}", count=n, total=total)
        for name, n, total in counts
        if n > most * total
    ]


@dataclass(frozen=True, slots=True)
class ScoreRow:
    """One checkpoint on one evaluation. Differences are to the control of its table."""

    evaluation: str
    benchmark: str
    checkpoint: str
    score: float
    low: float
    """Lower limit of the score's 95 % interval."""
    high: float
    items: int
    repeats: int
    abstained: int
    """Answers without a score, of items x repeats."""
    control: str = ""
    """"" for the control itself, as in all that follows."""
    verdict: str = ""
    difference: float | None = None
    difference_low: float | None = None
    difference_high: float | None = None
    p_value: float | None = None
    """Corrected for the family of the table."""


def score_rows(table: ComparisonTable) -> list[ScoreRow]:
    """The lines of a table, in their order."""
    rows = []
    for line in table.lines:
        score = (line.score, line.interval.low, line.interval.high)
        size = (line.items, line.repeats, line.abstained)
        names = (table.evaluation.name, table.evaluation.benchmark, line.name)
        against: tuple[str | float, ...] = ()
        if line.to_control is not None:
            comparison = line.to_control.comparison
            limits = (comparison.interval.low, comparison.interval.high)
            verdict = (line.to_control.control, comparison.verdict)
            against = (*verdict, comparison.difference, *limits, comparison.adjusted_p)
        rows.append(ScoreRow(*names, *score, *size, *against))  # type: ignore[arg-type]
    return rows


def reported_rows(run: RunDirectory) -> Iterator[ScoreRow]:
    """The rows of every reporting evaluation of a run that has a finished record.

    Raises what reading the records raises.
    """
    history = History(run)
    for record in history.evaluations:
        measured = history.measured(record)
        if record.role == "report" and measured:
            yield from score_rows(compare_checkpoints(run, record.key, measured[0], measured[1:]))
