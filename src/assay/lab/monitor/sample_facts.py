"""Reads what the samples of a stage's steps note of each completion, for the progress report.

Facts of a reward are taken by their names, whatever the task; what a task does not note is None.
The facts of a step are kept as long as its file does not change. Nothing is counted here.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from assay.data.hashing import sha256_text
from assay.data.kept import kept
from assay.runs.history import History, Sample, is_there, samples_in
from assay.runs.records import outcome
from assay.tasks.fact_reading import operators_in, plain_facts
from assay.tasks.reward_metrics import marked


@dataclass(frozen=True, slots=True)
class SampleFacts:
    """One completion."""

    sample_id: str
    step: int
    row_id: str
    group: str
    """Its group: row and visit."""
    sample: int
    text_key: str
    """Equal for equal texts."""
    reward: float | None
    outcome: str
    error: str | None
    """The kind of its failure; "" where it has none, None where the task notes no errors."""
    form: bool | None
    """Whether it has the right form, as its reward says; None where it does not."""
    operators: tuple[str, ...] | None
    fallback: bool | None
    cost: float | None
    problem_type: str

    @property
    def combination(self) -> str | None:
        """The operators that it called, as one name; "" for none."""
        return None if self.operators is None else "+".join(sorted(self.operators))


@dataclass(frozen=True, slots=True)
class SampleText:
    """What a completion says, for those that are shown."""

    facts: SampleFacts
    program: str
    """Its program; the completion where the task notes none."""
    why: str


def facts_of_steps(history: History, stage: str, steps: Sequence[int]) -> list[SampleFacts]:
    """The completions of the steps whose samples are kept, in order. Raises DamagedRecord."""
    files = [history.run.samples(stage, step) for step in steps]
    return [each for file in files if is_there(file) for each in _facts(file)]


def programs_of_step(history: History, stage: str, step: int) -> Sequence[SampleText]:
    """The completions of one step with their programs; none where no sample is kept."""
    file = history.run.samples(stage, step)
    return _programs(file) if is_there(file) else ()


@kept(4096)
def _facts(file: Path) -> tuple[SampleFacts, ...]:
    return tuple(each.facts for each in _read(file))


@kept(32)
def _programs(file: Path) -> tuple[SampleText, ...]:
    return tuple(_read(file))


def _read(file: Path) -> Iterator[SampleText]:
    for each in samples_in(file):
        facts = plain_facts(each.facts)
        program = str(facts.get("program") or each.text)
        yield SampleText(_noted(each, facts), program, facts.get("why", ""))


def _noted(sample: Sample, facts: dict) -> SampleFacts:
    operators, fallback, error = facts.get("operators"), facts.get("fallback"), facts.get("error")
    return SampleFacts(
        sample_id=sample.id,
        step=sample.step or 0,
        row_id=sample.row,
        group=f"{sample.row}#{sample.visit}@{sample.step}",
        sample=sample.number,
        text_key=sha256_text(sample.text or "")[:16],
        reward=sample.reward,
        outcome=sample.outcome or outcome(sample.reward, str(error or "")),
        error=None if error is None else str(error),
        form=marked(sample.judgement, "format"),
        operators=None if operators is None else operators_in(str(operators)),
        fallback=None if fallback is None else fallback > 0,
        cost=facts.get("cost"),
        problem_type=str(facts.get("problem_type", "")),
    )


@dataclass(frozen=True, slots=True)
class SamplePair:
    """A completion of the first step and one of the last."""

    same_row: bool
    before: SampleText
    after: SampleText


def sample_pair(history: History, stage: str, first: int, last: int) -> SamplePair | None:
    """Of the first row by id that both steps sampled, the completions of the median reward.

    The choice looks at nothing else, so that it cannot flatter a run. Where no row is in both
    steps, each step gives its own. None where the two are one step, where one keeps no samples, or
    where the task notes no programs. Raises DamagedRecord.
    """
    before, after = (
        [
            each
            for each in programs_of_step(history, stage, step)
            if each.facts.error is not None and each.facts.reward is not None
        ]
        for step in (first, last)
    )
    if first == last or not before or not after:
        return None
    shared = {s.facts.row_id for s in before} & {s.facts.row_id for s in after}
    if not shared:
        return SamplePair(False, _median(before), _median(after))
    row = min(shared)
    both = ([s for s in part if s.facts.row_id == row] for part in (before, after))
    return SamplePair(True, *map(_median, both))


def _median(samples: Sequence[SampleText]) -> SampleText:
    """The one of the median reward; the lower of two, and the earlier of equals."""
    ranked = sorted(samples, key=lambda s: (s.facts.reward or 0.0, s.facts.row_id, s.facts.sample))
    return ranked[(len(ranked) - 1) // 2]
