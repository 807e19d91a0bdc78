"""A selector of demonstrations as a `Learner`: `model = "selector:pointer"` and its kind, or the
weights of one that was trained elsewhere, `model = "path:rce_epoch5.pt"`.

A checkpoint holds the weights and, in `selector.json`, what they were made for, so that it is never
read into another selector. Rows and features are `selector_encoder`'s.
"""

import copy
import json
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from assay.data.files import atomic_write_text, expanded
from assay.data.loaded import check_file
from assay.errors import InputError
from assay.experiment.base_table import RenderingSettings
from assay.experiment.checkpoint_reference import CheckpointReference
from assay.experiment.selector_table import PATH, SCHEME, UNTRAINED, SelectorSpec
from assay.experiment.stage_tables import DpoStage, GrpoStage, StageSpec, kept_reference
from assay.experiment.training_settings import FreezeAdapt, LoraAdapt
from assay.lab.setup.learner import LearnerInput, StagePolicy
from assay.models.adapt import Adaptation, freeze_matching, measure
from assay.models.folder import MODULE
from assay.models.state_dicts import copy_strictly, weight_fingerprint
from assay.models.weight_files import load_module
from assay.runs.run_directory import RunDirectory
from assay.runs.run_names import (
    checked_directory,
    experiment_of,
    resolve_checkpoint,
    stage_start,
)
from assay.tasks.demos.modules import (
    DROPOUT,
    NAMED_PATTERNS,
    USUAL_DROPOUT,
    SelectorSizes,
    make_selector,
)
from assay.tasks.demos.selector_encoder import Features, SelectorEncoder
from assay.tasks.demos.selector_policy import RandomPolicy, SelectorPolicy

PREFIXES = ("module.", "lever_lm.", "pointer_selector.", "model.")
"""What wrappers put before a name."""
RENAMED = {
    "cross_attn_layers.0.": "cross_attn.",
    "attn_norms.0.": "attn_norm.",
    "query_update_gate.": "gate.",
}
OTHERS: Mapping[str, str] = {
    "stop_token": "version 4-10: it may stop",
    "refine_score.": "version 4-9: it ranks in two stages",
    "slot_emb.": "version 4-8: it picks by slots",
    "dpp_proj.": "version 4-7: it spreads picks by a determinant",
    "topic_prototypes": "version 4-6: it covers topics",
    "attn_Wq.": "version 4-5: additive attention",
    "cand_encoder.": "version 4-4: candidates attend to each other",
    "div_lambda": "version 4-3: it spreads picks",
    "decoder_gru.": "version 4-2: a GRU updates its query",
    "query_update_weight": "version 1: its query moves by a weight",
    "cross_attn_layers.1.": "a pointer of several layers of attention",
    "transformer.": "a Lever-LM of version 0",
}
"""By a name that only they have: what the other versions are; of several the first."""


@dataclass(frozen=True, slots=True)
class ForeignSelector:
    """A selector of a file."""

    kind: str
    """Of `modules.MAKERS`."""
    width: int
    """Of the features that it reads."""
    settings: Mapping[str, Any]
    """What `[selector]` would have to say, as far as the file tells."""
    state: Mapping[str, Tensor]


def read_foreign(file: Path) -> ForeignSelector:
    """The selector of a file that Lever-Plus trained (yunsoft2019/Lever-Plus c228df3,
    `pointer_selector_v2.py`, `pointer_selector_v1_backup_biencoder.py`): of its trainers, of
    Lightning, or the weights alone. Only tensors and plain values are unpickled; versions that
    compute anything else are named and refused. Raises InputError, DataError where there is none.
    """
    weights = {_plain(name): tensor for name, tensor in _weights(file).items()}
    names = "".join(f"\n{name}" for name in weights)
    for name, what in OTHERS.items():
        if f"\n{name}" in names:
            problem = f"holds a selector of Lever-Plus, {what}"
            fix = (
                "pointers of one layer, with and without the gate of 4-1, and bi-encoders are read"
            )
            raise InputError(problem, file=file, fix=fix)
    if "input_proj.weight" in weights:
        hidden, width = weights["input_proj.weight"].shape
        settings = {"hidden": hidden, "gate": "gate.weight" in weights}
        return ForeignSelector("pointer", width, settings, weights)
    if "query_proj.0.weight" in weights:
        width = weights["query_proj.0.weight"].shape[1]
        scale = weights.pop("temperature", None)
        settings = {} if scale is None else {"temperature": float(scale.reshape(-1)[0])}
        return ForeignSelector("bi_encoder", width, settings, weights)
    few = ", ".join(list(weights)[:3]) or "no tensor"
    raise InputError(f"holds no selector of Lever-Plus: {few}", file=file)


def _weights(file: Path) -> Mapping[str, Tensor]:
    check_file(file)
    try:
        found = torch.load(file, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError) as error:
        why = " ".join(str(error).split()).partition(".")[0][:200]
        fix = "write the weights alone: torch.save(model.state_dict(), FILE)"
        raise InputError(f"is not read as plain tensors: {why}", file=file, fix=fix) from None
    for key in ("model_state_dict", "state_dict"):
        if isinstance(found, dict) and isinstance(found.get(key), dict):
            found = found[key]
    if not isinstance(found, dict):
        raise InputError(f"holds a {type(found).__name__}, no weights", file=file)
    # Lightning's file may hold the encoder beside the selector.
    inner = [name for name in found if "pointer_selector." in str(name)]
    names = inner or list(found)
    return {str(n): found[n].float() for n in names if isinstance(found[n], Tensor)}


def _plain(name: str) -> str:
    while prefix := next((each for each in PREFIXES if name.startswith(each)), ""):
        name = name.removeprefix(prefix)
    for theirs, ours in RENAMED.items():
        if name.startswith(theirs):
            return ours + name.removeprefix(theirs)
    return name


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
        """Which selector, of `selector_table.KINDS`."""
        if self.foreign is not None:
            return self.foreign.kind
        if self.given.source.startswith(SCHEME) or self.weights is None:
            return self.given.source.removeprefix(SCHEME)
        return self.stored["kind"]

    @cached_property
    def weights(self) -> Path | None:
        """The checkpoint of a `run:` source, or the file of a selector that was trained elsewhere;
        None for a fresh one."""
        if self.given.weights is None and self.given.source.startswith(PATH):
            return self.given.root / expanded(self.given.source.removeprefix(PATH))
        return self.given.weights

    @cached_property
    def foreign(self) -> ForeignSelector | None:
        """The selector of a file of weights, where the model is one. Raises InputError for features
        that it cannot read or settings that it was not made with."""
        weights = self.weights
        if weights is None or weights.is_dir():
            return None
        found, spec = read_foreign(weights), self.given.experiment.selector or SelectorSpec()
        for name in spec.model_fields_set & found.settings.keys():
            if getattr(spec, name) != found.settings[name]:
                problem = f"{getattr(spec, name)}, and the file has {found.settings[name]}"
                place = f"selector.{name}"
                raise InputError(problem, file=weights, field=place, fix="remove the setting")
        return found

    @cached_property
    def stored(self) -> dict[str, Any]:
        """What the checkpoint of a `run:` source says of itself."""
        assert self.weights is not None
        return json.loads((self.weights / ABOUT).read_text(encoding="utf-8"))

    @cached_property
    def spec(self) -> SelectorSpec:
        """The settings: the file's; of a `run:` source, that run's where the file has none; of
        weights that were trained elsewhere, what these tell."""
        spec = self.given.experiment.selector
        if self.foreign is not None:
            return (spec or SelectorSpec()).model_copy(update=dict(self.foreign.settings))
        if spec is None and self.weights is not None:
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
        if self.foreign is not None:
            self.refuse_width(self.foreign)
            copy_strictly(module.state_dict(), self.foreign.state, file=self.weights)
        elif self.weights is not None:
            self.load(module, self.weights)
        return module

    def refuse_width(self, found: ForeignSelector) -> None:
        """Raise InputError where the features are not as wide as those that a file reads."""
        if found.width != self.features.width:
            have, width = self.spec.features, self.features.width
            problem = f"it reads features of width {found.width}, and {have} has {width}"
            fix = "name the features that it was trained on: clip, or features of your own"
            file = self.weights
            raise InputError(problem, file=file, field="selector.features", fix=fix)

    def module(self, run: RunDirectory, reference: CheckpointReference) -> nn.Module:
        """The selector of a checkpoint. Raises InputError, RunNotFound,
        CheckpointDamaged."""
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
        """Raise InputError for stages that cannot train this selector, and for weights of a file
        that is none or reads other features."""
        for name, stage in self.given.experiment.stage.items():
            if isinstance(stage.adapt, LoraAdapt):
                problem = "a selector has no adapters"
                fix = 'leave adapt out, or write adapt = { kind = "freeze", patterns = [...] }'
                raise InputError(problem, field=f"stage.{name}.adapt", fix=fix)
        if self.foreign is not None:
            self.refuse_width(self.foreign)
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
