"""What the functions of the library return: a run, a measured checkpoint, a comparison of runs.

Figures are read from the records by `report.facts`, `compare` and `judge`, as pages and `--json`
have them; nothing is computed here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from assay.compare.arm import Provenance, load_arm
from assay.compare.judged_table import ScoreRow, sampled, score_rows
from assay.compare.table import ComparisonTable
from assay.data.formats.formats import read_rows
from assay.experiment.experiment import Experiment
from assay.judge.arms import SampledScores
from assay.judge.intervals import Interval, score_interval
from assay.judge.paired import score_range
from assay.library.live_values import frame
from assay.pages import content
from assay.pages.comparison_page import (
    comparison_sections,
    line_labels,
    warned,
)
from assay.pages.facts import RunFacts, gather
from assay.pages.html import inline_html
from assay.pages.page import Heading, Mark, Text
from assay.pages.run_page import head, page_of
from assay.pages.run_terminal import ended_text, summary_line
from assay.pages.words import words
from assay.runs.history import answers_in, evaluation_records
from assay.runs.metrics import metric_columns
from assay.runs.records import recorded_outcomes
from assay.runs.run_directory import RunDirectory
from assay.runs.run_files import read_selection
from assay.tasks.user_code import SCHEME, question

if TYPE_CHECKING:  # measuring loads torch, which records do without
    from pandas import DataFrame

    from assay.lab.monitor.progress import Progress


@dataclass(frozen=True)
class Run:
    """A run of the lab, read from its directory when it is first asked for.

    `str(run)` is its name, which every function takes; a notebook shows its scores and verdicts.
    """

    directory: RunDirectory
    lang: str = "en"
    did: str = ""
    """`started`, `resumed`, `measured`, `left alone` or `page written`; "" for one only opened."""

    def __str__(self) -> str:
        return str(self.directory)

    @property
    def name(self) -> str:
        """The name of the experiment."""
        return self.directory.name

    @property
    def path(self) -> Path:
        """The run's folder."""
        return self.directory.path

    @property
    def page(self) -> Path:
        """The page in the language `lang`; it exists once the run has finished."""
        return page_of(self.directory, self.lang)

    @cached_property
    def facts(self) -> RunFacts:
        """What the page is made of: manifest, curves, health findings and more."""
        return gather(self.directory)

    @property
    def experiment(self) -> Experiment:
        """The resolved experiment."""
        return self.facts.experiment

    @property
    def status(self) -> str:
        """`running`, `finished`, `failed` or `interrupted`."""
        return self.facts.status.status

    @cached_property
    def metrics(self) -> Mapping[str, Mapping[str, list[float | None]]]:
        """By stage the columns of its steps, such as `metrics["rl"]["reward_mean"]`.

        All have the length of the column `step`; None where a step has not the metric.
        """
        return {name: metric_columns(lines) for name, lines in self.facts.metrics.items()}

    @property
    def checkpoints(self) -> Mapping[str, Path]:
        """The folders of the finished checkpoints by name, `STAGE.step-N` as records have it."""
        return {
            f"{stage}.step-{step:06d}": self.directory.checkpoint(stage, step)
            for stage in self.experiment.stage
            for step in self.directory.checkpoint_steps(stage)
        }

    @property
    def best(self) -> Mapping[str, str]:
        """By stage the checkpoint that was chosen on dev items; the stage's start may be it."""
        chosen = {stage: read_selection(self.path, stage) for stage in self.experiment.stage}
        return {stage: each.checkpoint for stage, each in chosen.items() if each is not None}

    @cached_property
    def evaluations(self) -> Mapping[str, ComparisonTable]:
        """By name the reporting evaluations: scores with intervals, comparisons, verdicts."""
        return {m.name: m.table for m in self.facts.reported if m.table is not None}

    @property
    def scores(self) -> list[ScoreRow]:
        """The same as rows of plain values."""
        return [row for table in self.evaluations.values() for row in score_rows(table)]

    @property
    def summary(self) -> str:
        """The last checkpoint's score and verdict in one line."""
        return summary_line(self.directory, self.lang)

    def progress(
        self, stage: str | None = None, first: int | None = None, last: int | None = None
    ) -> "Progress | None":
        """Changes, findings and forecasts between two steps, by default since the last report.

        None before the first step. Raises InputError.
        """
        from assay.lab.monitor.progress import progress

        return progress(self.directory, stage, first, last)

    def _repr_html_(self) -> str:
        """For notebooks."""
        w = words(self.lang)
        main = self.facts.main
        results = content.result_blocks(self.facts, main, w) if main else []
        written = [Text(Mark(str(self.page), "code"))] if self.page.exists() else []
        shown = [Heading(str(self)), *head(self.facts, w), *results, *written]
        return inline_html(shown, w)

    def __repr__(self) -> str:
        """The last lines of `assay run`: verdict, what to look at, what to do next."""
        return ended_text(self.directory, self.lang)


@dataclass(frozen=True)
class RunComparison:
    """Runs compared item by item; the first line is the control."""

    table: ComparisonTable
    page: Path
    """The page of it."""
    lang: str = "en"

    @property
    def scores(self) -> list[ScoreRow]:
        """The same as rows of plain values."""
        return score_rows(self.table)

    @property
    def verdicts(self) -> Mapping[str, str]:
        """By checkpoint better, worse, equivalent or undecided; without the control."""
        return {row.checkpoint: row.verdict for row in self.scores if row.verdict}

    def _repr_html_(self) -> str:
        """For notebooks."""
        w, wanted = words(self.lang), ("scores", "differences")
        parts = comparison_sections(self.table, w, wanted=wanted)
        title = Heading(w("compare.title", evaluation=self.table.evaluation.name))
        about = Text(content.about_evaluation(self.table, w))
        blocks = [b for each in parts for b in each.blocks]
        return inline_html([title, about, *warned(self.table, w), *blocks], w)

    def __repr__(self) -> str:
        """The verdicts in words, and the page."""
        w = words(self.lang)
        labels, pairs = line_labels(self.table, w), content.pairings(self.table)
        lines = [
            f"{content.against(p, labels, w)}{w.colon}{p.explanation(w.verdicts)}" for p in pairs
        ]
        return "\n".join([*lines, w("terminal.page", file=self.page)])


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """A checkpoint, or another model, measured on a benchmark."""

    run: str
    """The run that holds the record."""
    evaluation: str
    checkpoint: str
    made: bool
    """False: the record was there already."""
    file: Path
    """The record."""
    score: float
    interval: Interval
    items: int
    clusters: int | None
    """Sources of the items, where items share some."""
    repeats: int
    trained_on_items: Mapping[str, int] | None
    """By data set the training rows that ask what an item asks; None where this is not known."""
    abstained: int
    """Answers without a score."""
    possible: tuple[float, float]
    """The lowest and the highest score that answers without one leave possible."""
    abstentions: Mapping[str, int]
    """Answers without a score by reason."""
    outcomes: Mapping[str, int]
    """Right and wrong answers and types of errors."""
    fallbacks: int | None
    """Answers that a fallback metric scored; None where no answer says what scored it."""
    limits: Mapping[str, object]
    """How answers were sampled, and the limit of their tokens."""
    truncated: int | None
    """Answers cut at that limit; None where this is not known."""
    sampled: SampledScores | None
    """mean@n and pass@k; None for single or greedy passes."""
    warnings: tuple[str, ...]
    questions: Mapping[str, str]
    """By item what is asked, where rows were handed in."""

    @property
    def answers(self) -> "DataFrame":
        """Every answer with its item, score, parts and type of error. Raises InputError without
        pandas, DamagedFile for a record that is not whole."""
        lines = [(line, self.questions.get(line["item_id"])) for line in answers_in(self.file)]
        return frame({"question": text, **line} if text else line for line, text in lines)


def rows_result(run: Run) -> EvaluationResult:
    """The result of a run that measured rows and trained nothing. Raises DamagedFile."""
    rows, questions = run.experiment.data["rows"], dict[str, str]()
    (record,) = evaluation_records(run.directory)
    if (rows.source or "").startswith(SCHEME):
        path = run.directory.root / (rows.source or "").removeprefix(SCHEME)
        questions = {row.id: question(row) for row in read_rows(path, rows.format or "")}
    origin = Provenance(run.directory, "base", record)
    return evaluation_result(origin, run.did != "left alone", questions)


def evaluation_result(
    origin: Provenance, made: bool, questions: Mapping[str, str]
) -> EvaluationResult:
    """The score of a finished record. Raises DamagedFile."""
    from assay.lab.session.evaluation import BASE, trained_on

    arm, record, checkpoint = load_arm(origin, outputs=False), origin.record, origin.checkpoint
    scores, counted = arm.scores, recorded_outcomes(arm.file)
    trained = trained_on(checkpoint, record.shared, origin.manifest)
    return EvaluationResult(
        run=str(origin.run),
        evaluation=record.name,
        checkpoint=checkpoint,
        made=made,
        file=arm.file,
        score=scores.mean,
        interval=score_interval(scores),
        items=len(scores.item_ids),
        clusters=scores.sources,
        repeats=scores.repeats,
        trained_on_items=record.shared if checkpoint != BASE else {},
        abstained=scores.missing,
        possible=score_range(scores),
        abstentions=counted.unscored,
        outcomes=counted.outcomes,
        fallbacks=counted.fallback,
        limits=record.sampling,
        truncated=arm.truncated,
        sampled=sampled(arm),
        warnings=tuple(filter(None, [*counted.warnings, *trained])),
        questions=questions,
    )
