"""A selector of demonstrations as a `Learner`: `model = "selector:pointer"` and its kind.

A checkpoint holds the weights and, in `selector.json`, what they were made for, so that it is never
read into another selector. Rows are read as unit vectors of the query and of its pool, which come
from `models.embeddings`.

Its policy picks demonstrations one after the other, without replacement: each pick is drawn by the
softmax of the scores of the candidates that are left (Plackett-Luce where picks do not change
scores). Actions are the demonstrations' numbers. Sampling and everything without gradient run
without dropout; with it only a gradient is computed, where the stage asks so.
"""

import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from assay.data.episode import Context, Turn
from assay.data.files import atomic_write_text, canonical_json, expanded, sha256_text
from assay.data.message_parts import images_in
from assay.data.renderings.rendering import Loss
from assay.data.row import Message, Row
from assay.errors import InputError, RunFailure
from assay.experiment.base_table import RenderingSettings
from assay.experiment.checkpoint_reference import CheckpointReference
from assay.experiment.selection_tables import SCHEME, UNTRAINED, SelectorSpec
from assay.experiment.stage_tables import DpoStage, GrpoStage, StageSpec, kept_reference
from assay.experiment.training_settings import FreezeAdapt, LoraAdapt
from assay.lab.models.learner import LearnerInput, StagePolicy
from assay.labs.demos.demonstrations import (
    POOL,
    SHOTS,
    DemonstrationSet,
    picks_of,
    selection_text,
    set_of,
)
from assay.labs.demos.modules import (
    DROPOUT,
    NAMED_PATTERNS,
    USUAL_DROPOUT,
    ChoiceBatch,
    FeatureTable,
    SelectionContext,
    SelectorSizes,
    batch_of,
    choice_of,
    make_selector,
)
from assay.models.adapt import Adaptation, train_all, train_unfrozen
from assay.models.embeddings import (
    PATH,
    combined,
    embed_images,
    embed_texts,
    encoder_named,
)
from assay.models.folder import MODULE
from assay.models.load import weight_fingerprint
from assay.models.weight_files import load_module, save_module
from assay.rl.packed import Packed
from assay.rl.policy import ActionScores, SampleKey, Sampling
from assay.rollout.token_choice import draw, key_states, uniforms
from assay.runs.run_directory import RunDirectory
from assay.runs.run_names import checked_directory, experiment_of, resolve_checkpoint, stage_start
from assay.tasks.task import Asked, Dialogue


class SelectorPolicy:
    """See `rl.policy.Policy`; contexts are `SelectionContext`s."""

    def __init__(self, module: nn.Module, frozen: nn.Module | None = None, dropout: bool = False):
        """`frozen` is the KL reference. With `dropout`, gradients are computed with the selector's
        dropout on, whose masks `models.lora.begin_masks` names."""
        self.module, self.frozen, self.dropout = module.eval(), frozen, dropout
        self.version = 0
        self._scoring = module

    def sample(
        self, contexts: Sequence[Context], keys: Sequence[SampleKey], sampling: Sampling
    ) -> list[Turn]:
        """One turn per context; equal contexts are encoded once."""
        choices = [choice_of(context) for context in contexts]
        distinct, context_N = apart(choices)
        batch = batch_of(distinct)
        self._scoring.eval()
        most = max((choice.shots for choice in choices), default=0)
        picked_NS = torch.zeros(len(choices), 0, dtype=torch.long)
        logps_NS = torch.zeros(len(choices), 0)
        states = key_states(keys)
        for place in range(most):
            with torch.no_grad():
                scores_NK = self._scoring(batch, context_N, picked_NS)[:, -1]
            left_NK = scores_NK.masked_fill(gone(batch, context_N, picked_NS)[:, -1], -torch.inf)
            going_N = torch.tensor([place < choice.shots for choice in choices])
            uniform = uniforms(states[going_N.numpy()], np.full(int(going_N.sum()), place))
            index_N = torch.zeros(len(choices), dtype=torch.long)
            logp_N = torch.zeros(len(choices))
            drawn = draw(left_NK[going_N], sampling, torch.from_numpy(uniform))
            index_N[going_N], logp_N[going_N] = drawn[0], drawn[1].float()
            picked_NS = torch.cat([picked_NS, index_N[:, None]], dim=1)
            logps_NS = torch.cat([logps_NS, logp_N[:, None]], dim=1)
        return [
            self._turn(choice, picked_S, logps_S)
            for choice, picked_S, logps_S in zip(
                choices, picked_NS.tolist(), logps_NS.tolist(), strict=True
            )
        ]

    def _turn(self, choice: SelectionContext, places: list[int], logps: list[float]) -> Turn:
        shots = choice.shots
        picks = tuple(choice.pool[place] for place in places[:shots])
        known = tuple(logps[:shots])
        return Turn(choice, picks, (True,) * shots, known, "stop", self.version)

    def score(self, packed: Packed, entropy: bool = False) -> ActionScores:
        """Log-probs (S) and, if asked, entropies (S) of the picks, each among those left.

        Raises RunFailure for a pick that its pool does not hold.
        """
        distinct, context_N = apart([choice_of(context) for context in packed.contexts])
        batch = batch_of(distinct)
        taken_NS, places_NS = self._places(batch, context_N, packed)
        dropping = self.dropout and torch.is_grad_enabled() and self._scoring is self.module
        self._scoring.train(dropping)
        scores_NSK = self._scoring(batch, context_N, places_NS[:, :-1])
        # Only picks that were made: where a turn has fewer than others, nobody may be left.
        left_SK = scores_NSK.masked_fill(gone(batch, context_N, places_NS[:, :-1]), -torch.inf)
        logps_SK = (left_SK[taken_NS] / packed.temperature).log_softmax(-1)
        logps_S = logps_SK.gather(1, places_NS[taken_NS][:, None])[:, 0]
        if not entropy:
            return ActionScores(logps_S)
        known_SK = logps_SK.masked_fill(logps_SK == -torch.inf, 0.0)
        return ActionScores(logps_S, -(logps_SK.exp() * known_SK).sum(-1))

    def _places(
        self, batch: ChoiceBatch, context_N: Tensor, packed: Packed
    ) -> tuple[Tensor, Tensor]:
        """Which of (N, S) picks were made, and the places in the pools that they name."""
        lengths_N = packed.offsets_N1.diff()
        most = max(int(lengths_N.max()) if len(lengths_N) else 0, 1)
        taken_NS = torch.arange(most) < lengths_N[:, None]
        actions_NS = torch.full(taken_NS.shape, -2)
        actions_NS[taken_NS] = packed.actions_S
        same_NSK = actions_NS[:, :, None] == batch.numbers_BK[context_N][:, None]
        if not bool(same_NSK.any(-1)[taken_NS].all()):
            raise RunFailure("a stored pick is not in the pool of its query")
        return taken_NS, same_NSK.int().argmax(-1)

    @contextmanager
    def reference(self) -> Iterator[None]:
        """Inside, `score` answers for the frozen copy."""
        assert self.frozen is not None
        self._scoring = self.frozen
        try:
            with torch.no_grad():
                yield
        finally:
            self._scoring = self.module

    def conversations(self) -> AbstractContextManager[None]:
        """A selection is one turn."""
        return nullcontext()

    def updated(self) -> None:
        """Sampling uses the trained weights themselves."""
        self.version += 1

    def save(self, folder: Path) -> None:
        """The weights by their names."""
        save_module(self.module, folder)

    def load(self, folder: Path) -> None:
        """See `rl.policy.Policy`."""
        load_module(self.module, folder)

    def context_cost(self, context: Context) -> int:
        """The candidates of the pool."""
        return len(choice_of(context).pool)


class RandomPolicy(SelectorPolicy):
    """Picks uniformly, whatever the temperature: each sample of a row draws anew."""

    def sample(
        self, contexts: Sequence[Context], keys: Sequence[SampleKey], sampling: Sampling
    ) -> list[Turn]:
        """One turn per context."""
        return super().sample(contexts, keys, Sampling(1.0))


def apart(choices: Sequence[SelectionContext]) -> tuple[list[SelectionContext], Tensor]:
    """The choices that differ, in order, and for each of N choices its place among them."""
    places: dict[SelectionContext, int] = {}
    context = [places.setdefault(choice, len(places)) for choice in choices]
    return [*places], torch.tensor(context, dtype=torch.long)


def gone(batch: ChoiceBatch, context_N: Tensor, picked_NS: Tensor) -> Tensor:
    """Bool (N, S+1, K): which candidates cannot be picked before each pick and after the last:
    those picked earlier, and places where a pool is filled up."""
    absent_NK = batch.absent_BK[context_N]
    picked_NSK = nn.functional.one_hot(picked_NS, absent_NK.shape[1]).cumsum(1) > 0
    return torch.cat([absent_NK[:, None], picked_NSK | absent_NK[:, None]], dim=1)


@dataclass(frozen=True)
class Features:
    """Makes the features of messages, each once, or looks them up."""

    encoder: str
    """Of `models.embeddings.ENCODERS`, or a folder `path:DIR`."""
    answers: bool
    """Whether a demonstration's features are the mean of its question's and its answer's."""
    _tables: dict[str, FeatureTable] = field(default_factory=dict, compare=False)
    _queries: dict[str, Tensor] = field(default_factory=dict, compare=False)

    @property
    def fingerprint(self) -> str:
        """The sha256 of the encoder and of what it is given."""
        how = "mean" if self.answers else ""
        # A folder is known by what it holds, not by where it lies.
        name = "path" if self.encoder.startswith(PATH) else self.encoder
        made_by = encoder_named(self.encoder).fingerprint()
        return sha256_text(canonical_json([made_by, name, how]))

    @property
    def width(self) -> int:
        """D."""
        return encoder_named(self.encoder).width

    def table(self, demonstrations: DemonstrationSet) -> FeatureTable:
        """The features of a demonstration set. Raises what `embed_texts` does."""
        if demonstrations.fingerprint not in self._tables:
            questions = [demonstration.question for demonstration in demonstrations.demonstrations]
            shown_ND = self.of_messages(questions)
            if self.answers:
                # One text of both would be nearly that of the question, which is longer.
                answers = [demonstration.answer for demonstration in demonstrations.demonstrations]
                shown_ND = combined(shown_ND, embed_texts(answers, self.encoder))
            fingerprint = sha256_text(
                canonical_json([self.fingerprint, demonstrations.fingerprint])
            )
            table = FeatureTable(fingerprint, shown_ND)
            self._tables[demonstrations.fingerprint] = table
        return self._tables[demonstrations.fingerprint]

    def query(self, message: Message, name: str) -> Tensor:
        """The unit vector (D) of a query; `name` is unlike that of every other content."""
        if name not in self._queries:
            self._queries[name] = self.of_messages([message])[0]
        return self._queries[name]

    def of_messages(self, messages: Sequence[Message]) -> Tensor:
        """Unit vectors (N, D) of messages' texts and, where the encoder reads them, images."""
        vectors_ND = embed_texts([message.content for message in messages], self.encoder)
        if not encoder_named(self.encoder).images:
            return vectors_ND
        shown = {n: images_in([message]) for n, message in enumerate(messages)}
        pairs = [(n, image) for n, images in shown.items() for image in images]
        if not pairs:
            return vectors_ND
        vectors_MD = embed_images([image for _, image in pairs], self.encoder)
        owner_M = torch.tensor([n for n, _ in pairs])
        sums_ND = torch.zeros_like(vectors_ND).index_add(0, owner_M, vectors_MD)
        some_N = torch.tensor([bool(images) for images in shown.values()])
        return torch.where(some_N[:, None], combined(sums_ND, vectors_ND), vectors_ND)


@dataclass(frozen=True)
class SelectorEncoder:
    """See `lab.models.learner.Encoder`; contexts are `SelectionContext`s, actions numbers of
    demonstrations."""

    features: Features
    thinking: None = None
    stop: None = None

    @property
    def name(self) -> str:
        """The features' encoder."""
        return self.features.encoder

    @property
    def fingerprint(self) -> str:
        """That of the features."""
        return self.features.fingerprint

    def stopping_at(self, strings: tuple[str, ...]) -> "SelectorEncoder":
        """Raises InputError: a selection is no text."""
        raise InputError("a selection has no text that could hold a stop string", field="stop")

    def prompt(self, row: Row, question: Asked) -> SelectionContext:
        """The row's query and pool. Raises InputError for a row without."""
        table, query = self.features.table(set_of(row)), question.messages[-1]
        images = [image.sha256 for image in images_in([query])]
        name = sha256_text(canonical_json([query.content, *images]))
        vector_D = self.features.query(query, name)
        pool = tuple(row.extra[POOL])
        return SelectionContext(row.id, name, pool, row.extra[SHOTS], table, vector_D)

    def turns(self, row: Row, messages: Sequence[Message], loss_on: Loss) -> tuple[Turn, ...]:
        """A stored selection. Raises InputError for one that the row does not allow."""
        picks = picks_of(row, messages[-1].content)
        choice = self.prompt(row, Asked(tuple(messages[:-1])))
        return (Turn(choice, picks, (True,) * len(picks)),)

    def environment(self, row: Row, dialogue: Dialogue) -> Any:
        """Raises InputError: a selector answers once."""
        raise InputError("a selector answers once", file=row.origin or None, field="task")

    def decode(self, actions: Sequence[int]) -> str:
        """The selection's text."""
        return selection_text(actions)

    def size(self, context: Context) -> int:
        """The candidates."""
        return len(choice_of(context).pool)

    def plain(self, context: Context) -> Mapping[str, Any]:
        """Everything that the choice depends on."""
        choice = choice_of(context)
        return {
            "query": choice.query,
            "asked": choice.question,
            "pool": list(choice.pool),
            "shots": choice.shots,
            "features": choice.features.fingerprint,
        }

    def text(self, context: Context) -> str:
        """The query and its pool."""
        choice = choice_of(context)
        return f"query {choice.query}: pick {choice.shots} of {list(choice.pool)}"


ABOUT = "selector.json"
"""The file of a checkpoint that says what its weights were made for."""


@dataclass(frozen=True)
class SelectorLearner:
    """See `lab.models.learner.Learner`."""

    inputs: LearnerInput
    name: str = "selector"
    positions: int | None = field(default=None, repr=False)

    @property
    def kind(self) -> str:
        """Which selector, of `selection_tables.KINDS`."""
        if self.inputs.source.startswith(SCHEME) or self.inputs.weights is None:
            return self.inputs.source.removeprefix(SCHEME)
        return self.stored["kind"]

    @cached_property
    def stored(self) -> dict[str, Any]:
        """What the checkpoint of a `run:` source says of itself."""
        assert self.inputs.weights is not None
        return json.loads((self.inputs.weights / ABOUT).read_text(encoding="utf-8"))

    @cached_property
    def spec(self) -> SelectorSpec:
        """The settings: the file's; of a `run:` source, that run's where the file has none."""
        spec = self.inputs.experiment.selector
        if spec is None and self.inputs.weights is not None:
            return SelectorSpec(**self.stored["settings"])
        return spec or SelectorSpec()

    @cached_property
    def features(self) -> Features:
        """Makes what the selector sees."""
        kind, _, place = self.spec.features.rpartition(":")
        folder = self.inputs.root / expanded(place)
        return Features(f"{kind}:{folder}" if kind else place, self.spec.answers)

    @property
    def fingerprint(self) -> str:
        """The sha256 of the base weights."""
        return weight_fingerprint(self.base())

    @property
    def sizes(self) -> SelectorSizes:
        """What the selector is made from."""
        spec, dropout = self.spec, self.spec.dropout
        return SelectorSizes(
            width=self.features.width,
            hidden=spec.hidden,
            dropout=DROPOUT.get(self.kind, USUAL_DROPOUT) if dropout is None else dropout,
            temperature=spec.temperature,
            gate=spec.gate,
            vocabulary=spec.vocabulary,
        )

    def base(self) -> nn.Module:
        """The selector before any training of this experiment: drawn by the experiment's first
        seed, or another run's."""
        module = make_selector(self.kind, self.sizes, self.inputs.experiment.seeds[0])
        if self.inputs.weights is not None:
            self.load(module, self.inputs.weights)
        return module

    def module(self, run: RunDirectory, reference: CheckpointReference) -> nn.Module:
        """The selector of a checkpoint. Raises InputError, RunNotFound,
        DamagedFile."""
        if reference.stage is not None and reference.step == 0:
            return self.module(*stage_start(run, experiment_of(run).stage[reference.stage]))
        checkpoint = resolve_checkpoint(run, reference)
        module = self.base()
        if checkpoint.stage is not None:
            self.load(module, checked_directory(run, checkpoint))
        return module

    def load(self, module: nn.Module, folder: Path) -> None:
        """Read a checkpoint's weights, once it is seen to be one of this selector."""
        refuse_other(folder, self.about())
        load_module(module, folder)

    def about(self) -> dict[str, object]:
        """What a checkpoint says of itself."""
        sizes = {"width": self.features.width, "features": self.features.fingerprint}
        return {"kind": self.kind, "sizes": sizes, "settings": self.spec.model_dump()}

    def check(self) -> None:
        """Raise InputError for stages that cannot train this selector."""
        for name, stage in self.inputs.experiment.stage.items():
            if isinstance(stage.adapt, LoraAdapt):
                problem = "a selector has no adapters"
                fix = 'leave adapt out, or write adapt = { kind = "freeze", patterns = [...] }'
                raise InputError(problem, field=f"stage.{name}.adapt", fix=fix)
        if self.kind not in UNTRAINED:
            for stage in self.inputs.experiment.stage.values():
                adapt(make_selector(self.kind, self.sizes, 0), self.kind, stage)

    def encoder(self, rendering: RenderingSettings) -> SelectorEncoder:
        """A selector knows no renderings: its rows are features."""
        return SelectorEncoder(self.features)

    reader = encoder

    def policy(self, run: RunDirectory, stage: StageSpec) -> StagePolicy:
        """See `Learner`; with its KL reference.

        Dropout is on where likelihoods are compared with nothing, or where the stage asks for it.
        """
        start, reference = stage_start(run, stage)
        module = self.module(start, reference)
        frozen = self.reference(stage, module)
        adaptation = adapt(module, self.kind, stage)
        compared = isinstance(stage, GrpoStage | DpoStage)
        dropout = not compared or (isinstance(stage, GrpoStage) and bool(stage.dropout))
        share = (
            f"{adaptation.kind}, {adaptation.trainable:,} of {adaptation.total:,} weights "
            f"trained ({adaptation.share:.1%})"
        )
        return StagePolicy(SelectorPolicy(module, frozen, dropout), (share,))

    def reference(self, stage: StageSpec, start: nn.Module) -> nn.Module | None:
        """A frozen copy of the reference; None where none is read."""
        which = kept_reference(stage)
        if which is None:
            return None
        frozen = self.base() if which == "base" else copy.deepcopy(start)
        return frozen.requires_grad_(False).eval()

    def sampler(self, run: RunDirectory, reference: CheckpointReference) -> SelectorPolicy:
        """See `Learner`."""
        make = RandomPolicy if self.kind == "random" else SelectorPolicy
        return make(self.module(run, reference))

    def complete(self, run: RunDirectory, stage: StageSpec, folder: Path) -> None:
        """Write what the checkpoint is of."""
        atomic_write_text(folder / ABOUT, json.dumps(self.about(), indent=2) + "\n")

    def first_batch_check(self, stage: StageSpec) -> None:
        """None: sampling and training run the same module."""
        return


def refuse_other(folder: Path, ours: dict[str, object]) -> None:
    """Raise InputError where a checkpoint is not one of the selector `ours` tells of."""
    if not (folder / ABOUT).is_file():
        problem = "is missing: no checkpoint of a selector"
        raise InputError(problem, file=folder / ABOUT)
    theirs = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
    if theirs["kind"] != ours["kind"]:
        problem = f"checkpoint of another selector: {theirs['kind']}, the model is {ours['kind']}"
        fix = "load it as the selector that it is"
        raise InputError(problem, file=folder / MODULE, field="selector", fix=fix)
    if theirs["sizes"] != ours["sizes"]:
        have, want = described(theirs), described(ours)
        problem = f"feature dimension mismatch: trained on {have}, the model reads {want}"
        fix = "set [selector] features and answers as they were"
        raise InputError(problem, file=folder / MODULE, field="selector.features", fix=fix)


def described(about: dict) -> str:
    """The features of a selector in words."""
    settings, width = about["settings"], about["sizes"]["width"]
    return f"{settings['features']} of width {width}" + (
        " with answers" if settings["answers"] else ""
    )


def adapt(module: nn.Module, kind: str, stage: StageSpec) -> Adaptation:
    """Make the module ready to train as the stage's `adapt` table says.

    Raises InputError for a pattern without a match, and where all is frozen.
    """
    if not isinstance(stage.adapt, FreezeAdapt):
        return train_all(module)[1]
    named = NAMED_PATTERNS.get(kind, {})
    patterns = [each for name in stage.adapt.patterns for each in named.get(name, (name,))]
    return train_unfrozen(module, patterns)[1]
