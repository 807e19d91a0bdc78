"""Arms of a comparison: scores by item and repeat, answers, and the records they come from.

Loads arms from a lab's records and from files of other tools, and says what two have in common:
their answers, their picks (of selectors, whose answers are lists of picks) and their weights.
Whether two may be compared is decided in `fairness`; differences are judged in `judged_table`.
"""

import json
import math
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import compress, pairwise
from pathlib import Path
from typing import Any

from assay.data.files import Damage, recorded_checksums
from assay.data.loaded import DataError
from assay.data.results.column_mapping import Columns
from assay.data.results.foreign_result import SCORE, Result
from assay.data.results.lm_eval import sample_logs
from assay.data.results.readers import SUFFIXES, read_results
from assay.errors import InputError, nearest
from assay.experiment.checkpoint_reference import parse_checkpoint
from assay.judge.arms import as_repeats
from assay.judge.identity import is_fallback
from assay.judge.scores import ItemScores, item_scores, on_one_scale
from assay.models.folder import compare_weights
from assay.runs.history import History
from assay.runs.records import CLUSTER, OUTCOME, EvaluationRecord, outcome, read_columns, scores_of
from assay.runs.run_directory import Manifest, RunDirectory, check_checkpoint, read_manifest
from assay.runs.run_names import located

COLUMNS = ("item_id", "repeat", "score", "parts", "error")
OUTPUT = "output"
ENDED = "ended"
CUT = "length"
"""How a completion ended that was cut at the limit of tokens."""
OWN = "assay"
"""The format of a lab's own records."""
NOISE = 1e-3
"""How far the scores of equal answers may lie apart where a reward model computed them."""

Key = tuple[str, int]
"""Item and repeat."""


@dataclass(frozen=True)
class Provenance:
    """The run, checkpoint and evaluation record of a lab that scores come from."""

    run: RunDirectory
    checkpoint: str
    record: EvaluationRecord

    def __str__(self) -> str:
        return f"{self.run}@{self.checkpoint}"

    @cached_property
    def history(self) -> History:
        """What the run recorded."""
        return History(self.run)

    @property
    def manifest(self) -> Manifest:
        """The fingerprints of the run. Raises DamagedFile."""
        return self.history.manifest

    @property
    def file(self) -> Path:
        """The file of the record."""
        return self.record.file(self.run.evaluations, self.checkpoint)

    @property
    def address(self) -> str:
        """With an item's id appended, what `assay report` takes."""
        return f"{self.run}:{self.record.key}/{self.checkpoint}/"


@dataclass(frozen=True)
class Arm:
    """One side of a comparison, whether a lab or another tool measured it."""

    name: str
    scores: ItemScores
    """I items x R repeats; the repeats of all training seeds where there are several."""
    origin: Provenance | Result
    """The source of the scores: a record of a lab, or a file of another tool."""
    outputs: Mapping[Key, str] = field(default_factory=dict)
    """The text of every answer; empty where the file has none or they were not read."""
    judged: Sequence[tuple[float | None, str, str]] = ()
    """Score, error type and parts (JSON) of every answer; empty for a file of another tool."""
    outcomes: Sequence[str] = ()
    """What became of every answer; empty for a file of another tool."""
    ended: Sequence[str] = ()
    """How every completion ended; empty where this is not known."""
    seeds: tuple["Arm", ...] = ()
    """An arm for each training seed, the highest first; empty where there is one."""

    @property
    def provenance(self) -> Provenance | None:
        """The record of a lab; None for a file of another tool."""
        return self.origin if isinstance(self.origin, Provenance) else None

    @property
    def result(self) -> Result | None:
        """The content of another tool's file; None for a record of a lab."""
        return self.origin if isinstance(self.origin, Result) else None

    @property
    def members(self) -> tuple["Arm", ...]:
        """The arm of each training seed; the arm itself where there is one."""
        return self.seeds or (self,)

    @property
    def format(self) -> str:
        """The format that the scores were stored in."""
        return self.origin.format if isinstance(self.origin, Result) else OWN

    @property
    def benchmark(self) -> str:
        """The benchmark; empty where a file does not say."""
        origin = self.origin
        return origin.benchmark if isinstance(origin, Result) else origin.record.benchmark

    @property
    def checker(self) -> str:
        """The scorer; "" if a file does not name it."""
        origin = self.origin
        return origin.checker if isinstance(origin, Result) else origin.record.checker

    @property
    def file(self) -> Path:
        """The file that the scores come from."""
        return Path(self.origin.file).absolute()

    @property
    def recorded(self) -> Provenance:
        """The record of an arm that is known to be a lab's."""
        assert isinstance(self.origin, Provenance)
        return self.origin

    @cached_property
    def answers(self) -> list[tuple[float | None, str, Mapping[str, float]]]:
        """Score, error type and parts of every answer."""
        # Equal texts are parsed once.
        parts = {text: json.loads(text) for text in {text for _, _, text in self.judged}}
        return [(score, error, parts[text]) for score, error, text in self.judged]

    @property
    def truncated(self) -> int | None:
        """Completions cut at the limit of tokens, over all seeds; None where one does not tell."""
        ended = [each.ended for each in self.members]
        return sum(how == CUT for own in ended for how in own) if all(ended) else None

    @property
    def fallbacks(self) -> int:
        """Answers that were scored by a fallback metric."""
        return sum(bool(is_fallback(parts)) for _, _, parts in self.answers)


def load_arm(
    origin: Provenance,
    name: str | None = None,
    *,
    outputs: bool = True,
    first: int | None = None,
) -> Arm:
    """A finished record as an arm, named RUN@CHECKPOINT unless `name` is given.

    Without `outputs` the texts of the answers are not read. `first` leaves out all but the first so
    many items of the evaluation. Raises InputError where the record is not finished,
    DamagedFile.
    """
    run, record, checkpoint = origin.run, origin.record, origin.checkpoint
    if not record.finished(run, checkpoint):
        known = ", ".join(origin.history.measured(record)) or "none"
        problem = f"{run}: {record.name} of {checkpoint} has no finished record"
        raise InputError(problem, fix=f"finished are: {known}")
    columns = [*COLUMNS, OUTPUT] if outputs else COLUMNS
    by_column = read_columns(origin.file, columns, [CLUSTER, OUTCOME, ENDED])
    if first is not None:
        wanted = frozenset(record.items[:first])
        kept = [item in wanted for item in by_column["item_id"]]
        by_column = {name: [*compress(values, kept)] for name, values in by_column.items()}
    keys = list(zip(by_column["item_id"], by_column["repeat"], strict=True))
    outcomes = by_column.get(OUTCOME) or [""] * len(keys)
    return Arm(
        name=name or str(origin),
        scores=scores_of(
            by_column["item_id"],
            by_column["repeat"],
            by_column["score"],
            by_column.get(CLUSTER),
            part=record.part(checkpoint),
        ),
        origin=origin,
        outputs=dict(zip(keys, by_column[OUTPUT], strict=True)) if outputs else {},
        judged=list(zip(by_column["score"], by_column["error"], by_column["parts"], strict=True)),
        outcomes=[*map(outcome, by_column["score"], by_column["error"], outcomes)],
        ended=by_column.get(ENDED, ()),
    )


def with_seeds(arms: Sequence[Arm], name: str) -> Arm:
    """The arms of several training seeds as one, their scores on one scale as repeats; one alone as
    it is.

    Outputs and origin are those of the first. Raises InputError.
    """
    if len(arms) == 1:
        return arms[0]
    scores = on_one_scale(*(arm.scores for arm in arms))
    seeds = [replace(arm, scores=s) for arm, s in zip(arms, scores, strict=True)]
    return replace(arms[0], name=name, scores=as_repeats(scores), seeds=tuple(seeds))


def agreement(control: Arm, other: Arm) -> float | None:
    """Share of answers with equal text, of several training seeds over all of them; None if an
    arm has no stored answers."""
    sides = zip(control.seeds or (control,), other.seeds or (other,), strict=False)
    same = [
        one.outputs[key] == two.outputs[key]
        for one, two in sides
        for key in one.outputs.keys() & two.outputs.keys()
    ]
    return sum(same) / len(same) if same else None


def scored_apart(one: Arm, other: Arm) -> dict[str, tuple[float, float]]:
    """Items of which both have the same answer with other scores, and the first such scores."""
    ours, theirs = _by_answer(one), _by_answer(other)
    pairs: dict[str, tuple[float, float]] = {}
    for key in ours.keys() & theirs.keys():
        low, high = min(ours[key] | theirs[key]), max(ours[key] | theirs[key])
        if not math.isclose(low, high, rel_tol=NOISE, abs_tol=NOISE):
            pair = (min(ours[key]), max(theirs[key]))
            pairs[key[0]] = pair if pair[0] != pair[1] else (max(ours[key]), min(theirs[key]))
    return dict(sorted(pairs.items()))


def _by_answer(arm: Arm) -> dict[tuple[str, str], set[float]]:
    """The scores of a file by item and answer; none of failures and of what has no score."""
    by_answer: dict[tuple[str, str], set[float]] = {}
    for answer in () if arm.result is None else arm.result.answers:
        if answer.output is not None and answer.score is not None and not answer.error:
            by_answer.setdefault((answer.item, answer.output), set()).add(answer.score)
    return by_answer


def one_metric(arms: Iterable[Arm]) -> bool:
    """Whether a fallback metric scored all answers of these arms or none."""
    shares = {arm.fallbacks / len(arm.judged) for arm in arms if arm.judged}
    return shares <= {0.0} or shares == {1.0}


def identical(arms: Iterable[Arm]) -> list[tuple[Arm, Arm]]:
    """Pairs of arms that gave the same answer to every item in every repeat."""
    first: dict[tuple[tuple[Key, str], ...], Arm] = {}
    pairs = []
    for arm in arms:
        signature = tuple(sorted(arm.outputs.items()))
        if signature and signature in first:
            pairs.append((first[signature], arm))
        first.setdefault(signature, arm)
    return pairs


LONGEST_PART = 255
"""Bytes of a file's name; asking for a longer one is an error of the system."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options for reading files of other tools.

    Raises InputError for an item without score, the other way round, and with a metric.
    """

    metric: str | None = None
    """None: the file's only metric, or the one called `score`."""
    cluster: str | None = None
    """Column or metadata key that names the source of an item; None: `cluster`."""
    item: str | None = None
    """The columns of item and score in files of any tool; None: a known format."""
    score: str | None = None
    higher_is_better: bool | None = None
    """Of the metric; None: as the file or the metric's name says."""

    def __post_init__(self) -> None:
        if self.item is self.score is None:
            return
        if self.item is None or self.score is None:
            field = "--item" if self.item is None else "--score"
            raise InputError("missing", field=field, fix="--item COLUMN --score COLUMN, both")
        if self.metric is not None:
            fix = "leave it out: --score names it"
            raise InputError("the columns are named", field="--metric", fix=fix)

    @property
    def columns(self) -> Columns | None:
        """The columns that are named."""
        if self.item is None or self.score is None:
            return None
        return Columns(self.item, self.score)


def is_file(text: str) -> bool:
    """Whether a name on the command line means a file of results rather than a run."""
    if any(len(os.fsencode(part)) > LONGEST_PART for part in text.split("/")):
        return False
    path = file_and_run(text)[0]
    return path.suffix in SUFFIXES or path.is_file() or bool(sample_logs(path))


def read_arms(text: str, options: ReadOptions = ReadOptions()) -> list[Arm]:
    """The runs that `FILE` or `FILE@RUN` names, by one metric each.

    Raises InputError for a run that is not whole or has no score, and what `read_results` raises.
    """
    path, run = file_and_run(text)
    results = read_results(path, options.cluster, options.columns)
    if options.higher_is_better is not None:
        results = [replace(each, higher_is_better=options.higher_is_better) for each in results]
    names = {result.run for result in results}
    if run is not None and run not in names:
        raise InputError(f"holds no run {run!r}", file=path, fix=nearest(run, names))
    results = [result for result in results if run in (None, result.run)]
    return [arm_of(each) for each in _by_metric(path, results, options.metric)]


def arm_of(result: Result) -> Arm:
    """A result as an arm. Raises InputError for a run that is not whole, InputError."""
    if not result.answers:
        raise DataError("holds no answers", file=result.file)
    name = result.run
    if result.unfinished:
        fix = "only finished runs are compared"
        raise InputError(f"{name} is unfinished: {result.unfinished}", fix=fix)
    counts = Counter(answer.item for answer in result.answers)
    usual = Counter(counts.values()).most_common(1)[0][0]
    odd = [item for item, count in counts.items() if count != usual]
    if odd:
        problem = (
            f"{name} has {usual} answers to most items and {counts[odd[0]]} to {odd[0]!r}; "
            f"{len(odd)} of {len(counts)} items are uneven"
        )
        raise InputError(problem, fix="finish the run, or give each question an id of its own")
    outputs = {(a.item, a.repeat): a.output for a in result.answers if a.output is not None}
    known = [answer.score for answer in result.answers if answer.score is not None]
    lines = ((answer.item, answer.repeat, answer.score) for answer in result.answers)
    # On a scale from 0 to 1, or as wide as they are.
    bounds = min([0.0, *known]), max([1.0, *known])
    scores = item_scores(lines, result.clusters or None, bounds)
    return Arm(result.run, scores, result, outputs)


def distinct_names(arms: Sequence[Arm], files: Sequence[str]) -> list[Arm]:
    """The arms under names of their own: the file is added where runs are called alike.

    `files` has the file that each arm was read from, or the name of a run of the lab.
    """
    counts = Counter(arm.name for arm in arms)
    return [
        arm if counts[arm.name] == 1 else replace(arm, name=f"{file_and_run(file)[0]}@{arm.name}")
        for arm, file in zip(arms, files, strict=True)
    ]


def file_and_run(text: str) -> tuple[Path, str | None]:
    """File and run of `FILE` or `FILE@RUN`; names of files may hold an @ as well."""
    head, at, run = text.rpartition("@")
    if (
        not at
        or Path(text).is_file()
        or not (Path(head).is_file() or Path(head).suffix in SUFFIXES or sample_logs(Path(head)))
    ):
        return Path(text), None
    return Path(head), run


def _by_metric(path: Path, results: Sequence[Result], metric: str | None) -> list[Result]:
    known = list(dict.fromkeys(result.metric for result in results))
    if metric is None and len(known) > 1 and SCORE not in known:
        fix = "name one with --metric"
        raise InputError(f"has {len(known)} metrics: {', '.join(known)}", file=path, fix=fix)
    wanted = metric or (known[0] if len(known) == 1 else SCORE)
    # lm-eval itself writes `acc,none` for a metric without a filter.
    if wanted not in known and (plain := wanted.removesuffix(",none")) in known:
        wanted = plain
    if wanted not in known:
        words = any(wanted in result.left_out for result in results)
        problem = f"holds no metric {wanted!r}" + (" of numbers" if words else "")
        raise InputError(problem, file=path, fix=nearest(wanted, known))
    return [result for result in results if result.metric == wanted]


BASE = "base"
Picks = tuple[int, ...]
Weights = tuple[bool | None, float | None]
"""Whether two checkpoints have the same weights, and the share that differs; None: not known."""


def weights(one: Provenance, other: Provenance) -> Weights:
    """Whether two checkpoints have the same weights, by fingerprint or value by value.

    Raises DamagedFile.
    """
    bases = base_weights(one, other)
    if one.checkpoint == other.checkpoint == BASE:
        return (bases[0] == bases[1] if None not in bases else None), None
    folders = [folder for folder in map(_folder, (one, other)) if folder is not None]
    if len(folders) < 2:
        return None, None
    for folder in folders:
        check_checkpoint(folder, "restore it: whether the weights are the same cannot be told")
    difference = compare_weights(*folders)
    if difference is None:
        return None, None
    # An adapter is a difference to its base: the same adapter on another base is another model.
    return difference.changed == 0 and bases[0] == bases[1], difference.share


def recorded_weights(run: RunDirectory, checkpoint: str) -> Mapping[str, str]:
    """The fingerprint of each file of weights of a checkpoint as it was recorded, nothing read
    again; empty where none was, and for a checkpoint that is gone."""
    reference = parse_checkpoint(checkpoint)
    if reference is None or reference.stage is None:
        base = read_manifest(run).get("base_weights", {}).get("sha256")
        return {BASE: base} if base else {}
    if not reference.step:
        return {}
    recorded = recorded_checksums(run.checkpoint(reference.stage, reference.step))
    if recorded is None or isinstance(recorded, Damage):
        return {}
    return {name: sha for name, sha in recorded.items() if name.endswith(".safetensors")}


def same_weights(one: Provenance, other: Provenance) -> bool:
    """Whether two checkpoints are recorded with the same weights; an adapter on another base is
    another model."""
    left, right = (recorded_weights(each.run, each.checkpoint) for each in (one, other))
    bases = base_weights(one, other)
    return bool(left) and left == right and bases[0] == bases[1]


def base_weights(*origins: Provenance) -> list[str | None]:
    """The fingerprint of the model that each run began with; None where it is not recorded."""
    return [origin.manifest.get("base_weights", {}).get("sha256") for origin in origins]


def _folder(origin: Provenance) -> Path | None:
    """The folder of a trained checkpoint; None for the base and for one that was deleted."""
    run, reference = origin.run, parse_checkpoint(origin.checkpoint)
    if reference is not None and reference.step == 0:  # the start of a stage, in another run
        run, reference = located(run, reference)
    if reference is None or reference.stage is None or reference.step is None:
        return None
    folder = run.checkpoint(reference.stage, reference.step)
    return folder if folder.is_dir() else None


@dataclass(frozen=True, slots=True)
class SelectionPair:
    """How two checkpoints pick for the queries that both were asked, and their weights."""

    control: str
    other: str
    queries: int
    same_order: int
    """Queries with the same demonstrations in the same order: the same prompt for the frozen model,
    on which scores cannot differ."""
    same_set: int
    """Queries with the same demonstrations in any order."""
    jaccard: float
    """Mean over queries of the shared among all demonstrations of the two; 1 for two empty ones."""


def picked(arms: Sequence[Arm]) -> tuple[SelectionPair, ...]:
    """How far arms pick alike; nothing where the answers of one are no selections."""
    by_name: dict[str, Mapping[Key, Picks]] = {}
    for arm in arms:
        selections = selections_in(arm.outputs)
        if selections is None:
            return ()
        by_name[arm.name] = selections
    names = list(by_name)
    wanted = dict.fromkeys([*((names[0], each) for each in names[1:]), *pairwise(names)])
    pairs = (agree(one, two, by_name[one], by_name[two]) for one, two in wanted)
    return tuple(pair for pair in pairs if pair is not None)


def selections_in(outputs: Mapping[Any, str]) -> dict[Any, Picks] | None:
    """The picks of each answer; None where one is no list of different whole numbers, or all are
    empty."""
    selections = {}
    for key, text in outputs.items():
        try:
            picks: Any = json.loads(text)
        except ValueError:
            return None
        whole = isinstance(picks, list) and all(type(pick) is int for pick in picks)
        if not whole or len({*picks}) < len(picks):
            return None
        selections[key] = tuple(picks)
    return selections if any(selections.values()) else None


def agree(
    control: str, other: str, one: Mapping[Any, Picks], two: Mapping[Any, Picks]
) -> SelectionPair | None:
    """How two checkpoints agree on the queries of both; None where they share none."""
    pairs = [(picks, two[key]) for key, picks in one.items() if key in two]
    if not pairs:
        return None
    sets = [({*mine}, {*theirs}) for mine, theirs in pairs]
    jaccards = [len(a & b) / len(a | b) if a | b else 1.0 for a, b in sets]
    order, alike = (sum(a == b for a, b in both) for both in (pairs, sets))
    mean = math.fsum(jaccards) / len(pairs)
    return SelectionPair(control, other, len(pairs), order, alike, mean)
