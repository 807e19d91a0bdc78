"""The folder of a checkpoint as a whole model: an adapter's is merged into its base, once.

Whole checkpoints are used where they lie.
"""

from pathlib import Path

from assay.data.checksums import write_checksums
from assay.data.files import built_once, cache_root, sha256_file
from assay.data.hashing import canonical_json, sha256_text
from assay.experiment.checkpoint_reference import CheckpointReference
from assay.experiment.read_file import read_experiment
from assay.lab.setup.checkpoint_models import ModelShelf
from assay.models.folder import ADAPTER
from assay.models.precision import choose_precision
from assay.models.source import parse_source, resolve
from assay.models.supported import read_tokenizer
from assay.models.weight_files import save_weights
from assay.runs.run_directory import RunDirectory
from assay.runs.run_names import (
    resolve_checkpoint,
    run_checkpoint,
)


def model_folder(source: str, root: Path) -> Path:
    """The local folder of a model source; `run:` names are looked up in the lab at `root`."""
    return resolve(
        parse_source(source), relative_to=root, resolve_run=lambda name: run_folder(name, root)
    )


def run_folder(name: str, root: Path) -> Path:
    """The folder of `NAME@STAGE.last` and the like as a whole model, which `load_model` compares
    with its checksums. Raises RunNotFound, and CheckpointDamaged for an adapter's.
    """
    run, reference, folder = run_checkpoint(name, root)
    return merged_folder(run, reference, folder) if (folder / ADAPTER).is_file() else folder


def merged_folder(run: RunDirectory, reference: CheckpointReference, adapter: Path) -> Path:
    """A whole model in the cache made of an adapter and what it was trained on."""
    experiment = read_experiment(run.spec)
    base = model_folder(experiment.model, run.root)
    shelf = ModelShelf(experiment, run, base, choose_precision("fp32", "cpu"))

    def build(target: Path) -> None:
        save_weights(shelf.plain(reference), target, read_tokenizer(adapter))
        write_checksums(target)

    stage = experiment.stage[resolve_checkpoint(run, reference).stage or ""]
    whole, between = shelf.ground(stage)
    chain = [str(whole), *(sha256_file(folder / ADAPTER) for folder in (*between, adapter))]
    place = cache_root() / "merged" / sha256_text(canonical_json(chain))[:16]
    built_once(place, build)
    return place
