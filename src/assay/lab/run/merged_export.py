"""Exports a checkpoint as one merged model in a folder that other programs load.

Adapters are merged in fp32 and then rounded. A base of several models is written as it came, with
the weights of its text model replaced. `report.card` writes the card, `models.gguf_file` the
GGUF file, and `models.source` uploads.
"""

import copy
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from transformers import PreTrainedModel

from assay.data.files import canonical_json, new_folder, refuse_taken, sha256_file, sha256_text
from assay.data.renderings.checkpoint_template import chat_template, save_tokenizer
from assay.data.renderings.rendering import Renderer
from assay.errors import InputError, RunFailure, listed
from assay.experiment.checkpoint_reference import CheckpointReference, checkpoint_name
from assay.lab.models.language_learner import LanguageLearner, language_model, model_folder
from assay.lab.models.learner import begun_from
from assay.lab.monitor.observer import Observer, Silent
from assay.lab.session.manifest import check_base
from assay.lab.session.session import Session
from assay.models.folder import WEIGHTS, weight_files
from assay.models.gguf_file import check_gguf, write_gguf
from assay.models.load import GENERATION, is_composite, write_back
from assay.models.supported import TEMPLATE, quiet_transformers, read_config
from assay.models.weight_files import TESTED, in_file_names, save_weights, whole_state
from assay.runs.run_directory import RunDirectory, stored_status
from assay.runs.run_names import (
    checkpoint_directory,
    experiment_of,
    find_named,
    read_run_name,
)
from assay.train.checkpoint import HEADROOM

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
NAMES = {torch.bfloat16: "bf16", torch.float32: "fp32", torch.float16: "fp16"}
CARD = "README.md"


@dataclass(frozen=True, slots=True)
class Exported:
    """The files of an export."""

    run: RunDirectory
    checkpoint: str
    dtype: str
    rendering: str
    """The one that the stage was trained in."""
    base: Path
    """Folder of the run's model."""
    weights_sha256: str
    gguf: str
    """Name of the GGUF file; empty without one."""
    readers: str = TESTED
    """The versions of Transformers that such folders were tried with."""


def export(
    root: Path,
    target: str,
    folder: Path,
    card: Callable[[Exported], str],
    *,
    dtype: str | None = None,
    gguf: bool = False,
    observer: Observer | None = None,
) -> Exported:
    """Write `NAME@CHECKPOINT` as a whole model into `folder`, with `card` as its README.md.

    Without `dtype` weights are written in bf16; into a checkpoint of several models, each in the
    format of the one that it replaces.

    Raises InputError for a folder with something in it, RunNotFound, and InputError for a changed
    base, too little room, or a model that no GGUF file fits.
    """
    refuse_taken(folder)
    work = partial((observer or Silent()).work, f"exporting {target}", total=4 if gguf else 3)
    work(0, at="reads the checkpoint")
    name = target.removeprefix("run:")
    run, reference = find_named(root, name)
    checkpoint_directory(run, read_run_name(root, name).checkpoint or reference)
    session = Session(experiment_of(run), run, stored_status(run.path).seed, Silent())
    learner = language_model(session.learner, "assay export")
    check_base(session)
    model = learner.shelf(run).plain(reference).to("cpu")  # type: ignore[arg-type]
    if gguf:
        check_gguf(model, learner.base.tokenizer)
    with new_folder(folder) as part:
        check_room(part, model, learner.folder, dtype or "bf16", 2 if gguf else 1)
        made = write_model(session, learner, reference, model, part, dtype, gguf, work)
        (part / CARD).write_text(card(made), encoding="utf-8")
    work(4 if gguf else 3)
    return made


def write_model(
    session: Session,
    learner: LanguageLearner,
    reference: CheckpointReference,
    model: PreTrainedModel,
    part: Path,
    dtype: str | None,
    gguf: bool,
    work: Callable[..., None],
) -> Exported:
    """Weights, configs, tokenizer and template, and the GGUF file if it is wanted; `work` is told
    which part begins."""
    work(1, at="writes the weights")
    stage = session.experiment.stage[reference.stage or ""]
    renderer = learner.encoder(stage).renderer
    root = session.run.root
    base = model_folder(begun_from(session.experiment.model, root)[0], root)
    config = read_config(base)
    if is_composite(base, config):
        states = (make(model) for make in (whole_state, in_file_names))
        formats = write_back(base, config, states, part, DTYPES.get(dtype or ""))
        dtype = " and ".join(sorted(NAMES.get(one, str(one)) for one in formats))
        keep_ends(part, learner.base.end_tokens)
        replace_template(renderer, part)
    else:
        dtype = dtype or "bf16"
        model.to(DTYPES[dtype])  # type: ignore[arg-type]
        model.config.dtype = DTYPES[dtype]
        save_weights(model, part)
        (part / WEIGHTS).chmod(0o644)  # safetensors creates files that only their owner can read
        save_tokenizer(renderer, part)
        check_written(model, part)
    file = f"model-{dtype if dtype in DTYPES else 'bf16'}.gguf" if gguf else ""
    if gguf:
        work(2, at="writes the GGUF file")
        model.to(DTYPES.get(dtype, torch.bfloat16))  # type: ignore[arg-type]
        write_gguf(model, part, part / file)
    work(3 if gguf else 2, at="computes the fingerprint")
    hashes = [sha256_file(file) for file in weight_files(part)]
    return Exported(
        run=session.run,
        checkpoint=checkpoint_name(reference),
        dtype=dtype,
        rendering=renderer.name,
        base=base,
        weights_sha256=hashes[0] if len(hashes) == 1 else sha256_text(canonical_json(hashes)),
        gguf=file,
    )


def check_written(model: PreTrainedModel, part: Path) -> None:
    """Raise RunFailure unless Transformers, which other programs read the folder with, makes of it
    the very weights of `model`."""
    with quiet_transformers():
        read = type(model).from_pretrained(part, dtype=model.dtype).state_dict()
    own = model.state_dict()
    lost = [n for n in own if n not in read or not torch.equal(own[n].cpu(), read[n].to(own[n]))]
    if lost:
        problem = "the export is read back as another model than the checkpoint"
        told = f"{len(lost)} of {len(own)} tensors, {listed(lost, 3)}"
        raise RunFailure(f"{problem}: {told}; nothing is left")


def keep_ends(part: Path, ends: frozenset[int]) -> None:
    """Add the tokens that end an answer to a generation config that lacks any of them."""
    file = part / GENERATION
    stated = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    known = stated.get("eos_token_id", [])
    if not ends <= set(known if isinstance(known, list) else [known]):
        text = json.dumps(stated | {"eos_token_id": sorted(ends)}, indent=2) + "\n"
        file.write_text(text, encoding="utf-8")


def replace_template(renderer: Renderer, part: Path) -> None:
    """Write the template of a rendering, unless the model's own is that."""
    made = chat_template(renderer)
    if made == renderer.tokenizer.chat_template:
        return
    own = copy.copy(renderer.tokenizer)
    own.chat_template = made
    with TemporaryDirectory() as folder:
        own.save_pretrained(folder)
        shutil.copyfile(Path(folder) / TEMPLATE, part / TEMPLATE)


def check_room(folder: Path, model: PreTrainedModel, base: Path, dtype: str, copies: int) -> None:
    """Raise InputError unless so many copies of the weights fit, or as much as the base's files."""
    values = sum(parameter.numel() for parameter in model.parameters())
    there = sum(file.stat().st_size for file in weight_files(base))
    needed = max(copies * values * DTYPES[dtype].itemsize, there) + HEADROOM
    free = shutil.disk_usage(folder).free
    if free < needed:
        problem = f"the model needs {needed / 2**20:.0f} MB and {free / 2**20:.0f} MB are free"
        raise InputError(problem, file=folder.parent, fix="nothing was written: make room")
