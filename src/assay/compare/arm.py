"""One arm of a comparison: scores by item and repeat, answers, and the records they come from.

Loads arms from a lab's records. Whether two may be compared is decided in `fairness`; differences
are judged in `judged_table`.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import compress
from pathlib import Path

from assay.data.results.foreign_result import Result
from assay.errors import InputError
from assay.judge.arms import as_repeats
from assay.judge.identity import is_fallback
from assay.judge.scores import ItemScores, on_one_scale
from assay.runs.history import History
from assay.runs.records import CLUSTER, OUTCOME, EvaluationRecord, outcome, read_columns, scores_of
from assay.runs.run_directory import Manifest, RunDirectory

COLUMNS = ("item_id", "repeat", "score", "parts", "error")
OUTPUT = "output"
ENDED = "ended"
CUT = "length"
"""How a completion ended that was cut at the limit of tokens."""
NOISE = 1e-3
"""How far the scores of equal answers may lie apart where a reward model computed them."""
OWN = "assay"
"""The format of a lab's own records."""

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
        origin = self.origin
        return Path(origin.file).absolute() if isinstance(origin, Result) else origin.file

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


def with_seeds(first: Arm, further: Sequence[Arm], name: str) -> Arm:
    """The arms of several training seeds as one, their scores on one scale as repeats.

    Outputs and origin are those of the first. Raises InputError.
    """
    scores = on_one_scale(*(arm.scores for arm in (first, *further)))
    seeds = [replace(arm, scores=s) for arm, s in zip((first, *further), scores, strict=True)]
    return replace(first, name=name, scores=as_repeats(scores), seeds=tuple(seeds))


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
