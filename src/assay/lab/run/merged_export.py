"""Exports a checkpoint as one merged model in a folder that other programs load.

Adapters are merged in fp32 and then rounded. `report.card` writes the card, `models.gguf_file` the
GGUF file, and `models.hub` uploads.
"""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from transformers import PreTrainedModel

from assay.data.files import new_folder, refuse_taken, sha256_file
from assay.data.renderings.exported_template import save_tokenizer
from assay.experiment.checkpoint_reference import CheckpointReference, checkpoint_name
from assay.lab.monitor.observer import Observer, Silent
from assay.lab.setup.language_learner import LanguageLearner, language_model
from assay.lab.setup.manifest import check_base
from assay.lab.setup.session import Session
from assay.models.config_file import TESTED
from assay.models.folder import WEIGHTS
from assay.models.gguf_file import check_gguf, write_gguf
from assay.models.weight_files import save_weights
from assay.runs.run_directory import RunDirectory
from assay.runs.run_names import checkpoint_directory, experiment_of, find_named, read_run_name
from assay.runs.status import stored_status
from assay.train.checkpoint import HEADROOM, DiskFull

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
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
    dtype: str = "bf16",
    gguf: bool = False,
    observer: Observer | None = None,
) -> Exported:
    """Write `NAME@CHECKPOINT` as a whole model into `folder`, with `card` as its README.md.

    Raises FolderTaken for a folder with something in it, RunNotFound and NoCheckpoint, BaseChanged,
    DiskFull, and GgufUnsupported for a model that no GGUF file is written of.
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
        check_room(part, model, dtype, 2 if gguf else 1)
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
    dtype: str,
    gguf: bool,
    work: Callable[..., None],
) -> Exported:
    """Weights, configs, tokenizer and template, and the GGUF file if it is wanted; `work` is told
    which part begins."""
    work(1, at="writes the weights")
    stage = session.experiment.stage[reference.stage or ""]
    renderer = learner.encoder(stage).renderer
    model.to(DTYPES[dtype])  # type: ignore[arg-type]
    model.config.dtype = DTYPES[dtype]
    save_weights(model, part)
    (part / WEIGHTS).chmod(0o644)  # safetensors creates files that only their owner can read
    save_tokenizer(renderer, part)
    file = f"model-{dtype}.gguf" if gguf else ""
    if gguf:
        work(2, at="writes the GGUF file")
        write_gguf(model, part, part / file)
    work(3 if gguf else 2, at="computes the fingerprint")
    return Exported(
        run=session.run,
        checkpoint=checkpoint_name(reference),
        dtype=dtype,
        rendering=renderer.name,
        base=learner.folder,
        weights_sha256=sha256_file(part / WEIGHTS),
        gguf=file,
    )


def check_room(folder: Path, model: PreTrainedModel, dtype: str, copies: int) -> None:
    """Raise DiskFull unless so many copies of the weights fit."""
    values = sum(parameter.numel() for parameter in model.parameters())
    needed = copies * values * DTYPES[dtype].itemsize + HEADROOM
    free = shutil.disk_usage(folder).free
    if free < needed:
        problem = f"the model needs {needed / 2**20:.0f} MB and {free / 2**20:.0f} MB are free"
        raise DiskFull(problem, file=folder.parent, fix="nothing was written: make room")
