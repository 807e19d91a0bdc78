"""The interface of what an experiment trains: a language model, or a learner of one's own.

A `Learner` opens the experiment's model; its `Encoder` turns rows into what the policy reads, and
actions into text. A task brings kinds of its own with its hook `learner`. Nothing is opened here.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from assay.data.episode import Context, Turn
from assay.data.files import prompt_sha256
from assay.data.formats.plain_rows import candidate_message
from assay.data.renderings.rendering import Loss
from assay.data.row import Message, Row
from assay.errors import InputError, look_up
from assay.experiment.base_table import RenderingSettings
from assay.experiment.checkpoint_reference import CheckpointReference
from assay.experiment.experiment import Experiment
from assay.experiment.stage_tables import StageSpec
from assay.lab.monitor.observer import Observer
from assay.models.source import EXAMPLES
from assay.runs.records import PROMPT
from assay.runs.run_directory import RunDirectory
from assay.runs.run_names import experiment_of, run_checkpoint
from assay.tasks.task import Asked, Dialogue, FixedArm, Task, built_in, labs

if TYPE_CHECKING:  # pages prepare data without torch
    from assay.models.precision import Precision
    from assay.rl.policy import Policy, Sampling, Stop
    from assay.rl.thought import Thinking
    from assay.rollout.episodes import Samples
    from assay.train.loop import Check as BatchCheck
    from assay.train.sampled_groups import Conversation
    from assay.train.update import MicroBatchSize


Value = TypeVar("Value")


def each_encoded(
    encoder: "Encoder", rows: Sequence[Row], encode: Callable[[Row], Value], observer: Observer
) -> Iterator[Value]:
    """What `encode` gives for each row, by other processes where an encoder is slow: values that
    can be pickled."""
    ahead = getattr(encoder, "ahead", None)
    return ahead(rows, encode, observer) if ahead else map(encode, rows)


def encoded_by(task: Task, encoder: "Encoder") -> Any:
    """What a row's encoding depends on beside row and code, as JSON; None where nobody knows."""
    own, maker = type(task), getattr(encoder, "maker", None)
    built_in = own.__module__.startswith(f"{__name__.partition('.')[0]}.")
    return [own.__module__, own.__qualname__, maker] if built_in and maker else None


class Encoder(Protocol):
    """Rows as a policy reads them, and its actions as text."""

    @property
    def name(self) -> str:
        """How rows are written, such as the rendering of a language model."""
        ...

    @property
    def fingerprint(self) -> str:
        """Changes with everything that contexts depend on beside the row."""
        ...

    @property
    def thinking(self) -> "Thinking | None":
        """How chains of thought are found in the actions; None for a policy that writes none."""
        ...

    @property
    def stop(self) -> "Stop | None":
        """Texts that end a completion, before which `decode` cuts; None where there are none."""
        ...

    def stopping_at(self, strings: tuple[str, ...]) -> "Encoder":
        """The encoder with these stop strings. Raises InputError where actions are no text."""
        ...

    def prompt(self, row: Row, question: Asked) -> Context:
        """What the policy reads before it acts: the row's question, or one of its dialogue."""
        ...

    def turns(self, row: Row, messages: Sequence[Message], loss_on: Loss) -> tuple[Turn, ...]:
        """An answered row as stored turns to learn from; `messages` end with the answer. Raises
        InputError for an answer that the policy cannot give."""
        ...

    def environment(self, row: Row, dialogue: Dialogue) -> "Conversation":
        """A row of several turns. Raises InputError where the policy answers once."""
        ...

    def decode(self, actions: Sequence[int]) -> str:
        """The text that rewards and records see."""
        ...

    def size(self, context: Context) -> int:
        """Tokens or candidates that a context holds."""
        ...

    def plain(self, context: Context) -> Any:
        """The context as a JSON value, for fingerprints."""
        ...

    def text(self, context: Context) -> str:
        """The context to be read by a person."""
        ...


@dataclass(frozen=True, slots=True)
class StagePolicy:
    """The policy that a stage trains."""

    policy: "Policy"
    notes: tuple[str, ...] = ()
    """What is trained, for the display."""
    fit: "Callable[[MicroBatchSize], Sequence[str]]" = field(default=lambda largest: ())
    """Makes the largest micro-batch of the stage fit into memory; returns what it did in words."""
    fits: "Callable[[MicroBatchSize, int], bool]" = field(default=lambda largest, here: True)
    """Whether it fits with all weights in each of so many processes of this machine."""
    measured: "Callable[[], Mapping[str, float]]" = dict
    """Metrics of the engine that samples."""


class Learner(Protocol):
    """The experiment's model. Making one reads no weights."""

    @property
    def name(self) -> str:
        """What it is in a word: "language model". `lab.check` finds its own checks by it."""
        ...

    @property
    def fingerprint(self) -> str:
        """The sha256 of the base weights."""
        ...

    @property
    def positions(self) -> int | None:
        """Tokens that it can read at once; None where nothing bounds them."""
        ...

    def check(self) -> None:
        """Raise InputError for a model that cannot be opened, or not trained as the stages say,
        before a run is made for it. Reads no weights."""
        ...

    def encoder(self, rendering: RenderingSettings) -> Encoder:
        """How a stage or an evaluation with this `rendering` writes rows."""
        ...

    def reader(self, rendering: RenderingSettings) -> Encoder:
        """The same for who reads prompts alone: opened without weights, it knows no end tokens."""
        ...

    def policy(self, run: RunDirectory, stage: StageSpec) -> StagePolicy:
        """The policy that a stage of a run starts from, ready to train."""
        ...

    def sampler(self, run: RunDirectory, reference: CheckpointReference) -> "Samples":
        """A checkpoint of a run, freshly read, to sample from. Raises DamagedFile,
        RunNotFound."""
        ...

    def complete(self, run: RunDirectory, stage: StageSpec, folder: Path) -> None:
        """Add what a checkpoint holds beside the weights that the policy saves."""
        ...

    def first_batch_check(self, stage: StageSpec) -> "BatchCheck | None":
        """Checks the first update of a stage; None where there is nothing to compare."""
        ...


@dataclass(frozen=True, slots=True)
class LearnerInput:
    """What a learner is made from."""

    experiment: Experiment
    root: Path
    """The lab's root, where relative files lie."""
    precision: "Precision"
    source: str
    """The experiment's `model`; of a `run:` source, the model that the named run began with."""
    weights: Path | None = None
    """The folder of the checkpoint that a `run:` source names."""


TOKENS = "tokens"
"""The field of a stored candidate that holds the tokens which were sampled."""


def model_kinds(kind: str, skill: Task | None = None) -> list[str]:
    """The kinds of model source that an experiment with the task `skill` may name. Other tasks,
    which are slow to import, are asked only where `kind` is not known without them."""
    own = skill.kinds if skill else ()
    known = [*EXAMPLES, *own]
    return known if kind in known else [*known, *(k for each in built_in() for k in each.kinds)]


def arm_of(skill: Task, source: str) -> FixedArm | None:
    """The arm that a model source is; None where a learner or an endpoint answers. Raises
    InputError for none of its kind."""
    for each in labs(skill, source):
        if source in each.arms:
            return each.arms[source]
        kind = source.partition(":")[0]
        if kind in each.kinds and each.learner(source) is None:
            look_up(each.arms, source, kind)
    return None


def begun_from(source: str, root: Path) -> tuple[str, Path | None]:
    """The source that a model goes back to, and the folder of the checkpoint that a `run:` source
    names. Raises RunNotFound."""
    weights = None
    while source.startswith("run:"):
        run, _, folder = run_checkpoint(source.removeprefix("run:"), root)
        source, weights = experiment_of(run).model, weights or folder
    return source, weights


def question(task: Task, row: Row) -> Asked:
    """What is asked of a row that is one question."""
    return Asked(task.prompt(row), row.tools)


def first_context(
    encoder: Encoder, task: Task, row: Row, dialogue: Callable[[Row], Dialogue] | None
) -> Context:
    """What the policy reads first of a row, which may be a dialogue; of an agent's, which is not
    begun for this, the row's own prompt."""
    talk = dialogue(row) if dialogue else None
    turn = None if talk is None or hasattr(talk, "begin") else talk.asks()
    return encoder.prompt(row, turn or question(task, row))


def gold_turns(encoder: Encoder, task: Task, row: Row, loss_on: Loss = "last") -> tuple[Turn, ...]:
    """The gold answer of a row as turns to learn from. Raises InputError for a row without."""
    return encoder.turns(row, (*task.prompt(row), task.target(row)), loss_on)


def stored_turns(
    encoder: Encoder, task: Task, row: Row, candidates: Sequence[Mapping[str, Any]]
) -> list[tuple[Turn, ...]]:
    """The stored candidates of a row as turns to learn from: those that a run recorded in the very
    tokens that it sampled, else their text. Raises InputError."""
    context = None
    if any(TOKENS in candidate for candidate in candidates):
        context = encoder.prompt(row, question(task, row))
    # What is no text, such as a selection, is written and read back the same way.
    in_tokens, turns = isinstance(context, tuple), []
    for candidate in candidates:
        if in_tokens and TOKENS in candidate:
            turns.append((recorded_turn(row, context, candidate),))
        else:
            messages = (*task.prompt(row), candidate_message(candidate))
            turns.append(encoder.turns(row, messages, "last"))
    return turns


def recorded_turn(row: Row, context: Context, candidate: Mapping[str, Any]) -> Turn:
    """A completion as it was sampled, after the prompt of its row. Raises InputError."""
    if candidate.get(PROMPT) != prompt_sha256(context):
        run = row.extra.get("run", "its run")
        problem = f"row {row.id}: its prompt is rendered to other tokens than {run} sampled from"
        if candidate.get(PROMPT) is None:
            problem = f"row {row.id}: {run} did not record which prompt it sampled from"
        fix = "take the model, rendering and task of that run, or sample again"
        raise InputError(problem, field="data", fix=fix)
    tokens = tuple(candidate[TOKENS])
    return Turn(context, tokens, (True,) * len(tokens))


def drawn_by(table: Any, temperature: float) -> "Sampling":
    """The sampling settings of a stage's, an evaluation's or a helper model's table."""
    from assay.rl.policy import Sampling, Stop

    stop = None if table.stop is None else Stop(table.stop)
    cut = table.top_p, table.top_k, table.min_p or 0.0
    return Sampling(temperature, table.max_tokens, *cut, stop)


def refuse_longer(field: str, limit: int, positions: int | None) -> None:
    """Raise InputError where `limit` is more than all that the model reads at once."""
    if positions is not None and limit > positions:
        problem = f"{limit} tokens, and the model reads {positions} at once"
        raise InputError(problem, field=field, fix="allow fewer")
