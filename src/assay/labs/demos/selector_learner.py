"""A selector of demonstrations as a `Learner`: `model = "selector:pointer"` and its kind.

A checkpoint holds the weights and, in `selector.json`, what they were made for, so that it is never
read into another selector. Rows and features are `selector_encoder`'s.
"""

import copy
import json
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import nn

from assay.data.files import atomic_write_text, expanded
from assay.errors import InputError
from assay.experiment.base_table import RenderingSettings
from assay.experiment.checkpoint_reference import CheckpointReference
from assay.experiment.selection_tables import SCHEME, UNTRAINED, SelectorSpec
from assay.experiment.stage_tables import DpoStage, GrpoStage, StageSpec, kept_reference
from assay.experiment.training_settings import FreezeAdapt, LoraAdapt
from assay.lab.setup.learner import LearnerInput, StagePolicy
from assay.labs.demos.modules import (
    DROPOUT,
    NAMED_PATTERNS,
    USUAL_DROPOUT,
    SelectorSizes,
    make_selector,
)
from assay.labs.demos.selector_encoder import Features, SelectorEncoder
from assay.labs.demos.selector_policy import RandomPolicy, SelectorPolicy
from assay.models.adapt import Adaptation, freeze_matching, measure
from assay.models.folder import MODULE
from assay.models.load import weight_fingerprint
from assay.models.weight_files import load_module
from assay.runs.run_directory import RunDirectory
from assay.runs.run_names import (
    checked_directory,
    experiment_of,
    resolve_checkpoint,
    stage_start,
)

ABOUT = "selector.json"
"""The file of a checkpoint that says what its weights were made for."""


@dataclass(frozen=True)
class SelectorLearner:
    """See `lab.setup.learner.Learner`."""

    given: LearnerInput
    name: str = "selector"
    positions: int | None = field(default=None, repr=False)

    @property
    def kind(self) -> str:
        """Which selector, of `selection_tables.KINDS`."""
        if self.given.source.startswith(SCHEME) or self.given.weights is None:
            return self.given.source.removeprefix(SCHEME)
        return self.stored["kind"]

    @cached_property
    def stored(self) -> dict[str, Any]:
        """What the checkpoint of a `run:` source says of itself."""
        assert self.given.weights is not None
        return json.loads((self.given.weights / ABOUT).read_text(encoding="utf-8"))

    @cached_property
    def spec(self) -> SelectorSpec:
        """The settings: the file's; of a `run:` source, that run's where the file has none."""
        spec = self.given.experiment.selector
        if spec is None and self.given.weights is not None:
            return SelectorSpec(**self.stored["settings"])
        return spec or SelectorSpec()

    @cached_property
    def features(self) -> Features:
        """Makes what the selector sees."""
        kind, _, place = self.spec.features.rpartition(":")
        folder = self.given.root / expanded(place)
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
        module = make_selector(self.kind, self.sizes, self.given.experiment.seeds[0])
        if self.given.weights is not None:
            self.load(module, self.given.weights)
        return module

    def module(self, run: RunDirectory, reference: CheckpointReference) -> nn.Module:
        """The selector of a checkpoint. Raises InputError, RunNotFound,
        DamagedFile."""
        if reference.stage is not None and reference.step == 0:
            return self.module(*stage_start(run, experiment_of(run).stage[reference.stage]))
        found = resolve_checkpoint(run, reference)
        module = self.base()
        if found.stage is not None:
            self.load(module, checked_directory(run, found))
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
        for name, stage in self.given.experiment.stage.items():
            if isinstance(stage.adapt, LoraAdapt):
                problem = "a selector has no adapters"
                fix = 'leave adapt out, or write adapt = { kind = "freeze", patterns = [...] }'
                raise InputError(problem, field=f"stage.{name}.adapt", fix=fix)
        if self.kind not in UNTRAINED:
            for stage in self.given.experiment.stage.values():
                adapt(make_selector(self.kind, self.sizes, 0), self.kind, stage)

    def encoder(self, rendering: RenderingSettings) -> SelectorEncoder:
        """A selector knows no renderings: its rows are features."""
        return SelectorEncoder(self.features)

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
        module.requires_grad_(True)
        return measure(module, "full", {})
    named = NAMED_PATTERNS.get(kind, {})
    patterns = [each for name in stage.adapt.patterns for each in named.get(name, (name,))]
    adaptation = measure(module, "freeze", freeze_matching(module, patterns))
    if not adaptation.trainable:
        raise InputError("every weight is frozen", field="adapt.patterns", fix="drop a pattern")
    return adaptation
