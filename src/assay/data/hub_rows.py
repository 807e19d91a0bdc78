"""Reads a data set of the Hugging Face hub, or one that `datasets` saved, as plain objects.

`datasets` is an optional package, imported here where a data set is opened. Downloads lie in the
cache; what the columns mean is not known here.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from assay.data.files import cache_root, expanded
from assay.data.loaded import Found
from assay.data.parquet import BATCH_ROWS, plain_rows
from assay.errors import InputError, nearest

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict  # pyright: ignore[reportMissingImports]

SAVED = ("dataset_dict.json", "state.json")
"""Files in a folder that `save_to_disk` wrote."""


@dataclass(frozen=True, slots=True)
class HubSet:
    """Which data set is meant."""

    name: str
    """OWNER/NAME on the hub, or a folder."""
    config: str | None = None
    split: str | None = None
    """None where there is only one."""
    revision: str | None = None
    """A branch, a tag or a commit; None: the newest."""


@dataclass(frozen=True)
class OpenedSet:
    """One split of a data set, and where it came from."""

    data: "Dataset"
    revision: str
    """The commit on the hub; "" of a folder."""
    fingerprint: str
    """What `datasets` knows the data by."""


@lru_cache(maxsize=8)
def open_set(wanted: HubSet, root: Path) -> OpenedSet:
    """The split of a data set, downloaded unless the cache holds it; a folder counts from `root`.

    Raises InputError where `datasets` is not installed, and for what the hub does not have.
    """
    try:
        import datasets  # pyright: ignore[reportMissingImports]
    except ModuleNotFoundError as error:
        problem = f"hf:{wanted.name}: reading it needs the package {error.name}"
        raise InputError(problem, fix="pip install 'assay-lab[hf]'") from error
    datasets.disable_progress_bars()
    folder = root / expanded(wanted.name)
    try:
        if any((folder / name).is_file() for name in SAVED):
            return _opened(wanted, datasets.load_from_disk(str(folder)), "")
        name = str(folder) if folder.is_dir() else wanted.name
        cache = str(cache_root() / "datasets")
        source = {"revision": wanted.revision, "cache_dir": cache}
        builder = datasets.load_dataset_builder(name, wanted.config, **source)
        builder.download_and_prepare()
        return _opened(wanted, builder.as_dataset(), "" if folder.is_dir() else str(builder.hash))
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        if isinstance(error, InputError):
            raise
        message = " ".join(str(error).split())
        fix = "check its name, hub.config and hub.revision; a private one needs HF_TOKEN"
        raise InputError(f"hf:{wanted.name}: {message}", fix=fix) from error


def _opened(wanted: HubSet, loaded: "Dataset | DatasetDict", revision: str) -> OpenedSet:
    """The wanted split of what was opened. Raises InputError."""
    if not isinstance(loaded, dict):
        if wanted.split is not None:
            problem = f"hf:{wanted.name} is one data set, without splits"
            raise InputError(problem, field="hub.split", fix="remove it")
        return OpenedSet(loaded, revision, loaded._fingerprint)
    split = wanted.split or (next(iter(loaded)) if len(loaded) == 1 else None)
    if split is None:
        problem = f"hf:{wanted.name} has several splits"
        raise InputError(problem, field="hub.split", fix="name one of " + ", ".join(loaded))
    if split not in loaded:
        problem = f"hf:{wanted.name} has no split {split!r}"
        raise InputError(problem, field="hub.split", fix=nearest(split, loaded))
    return OpenedSet(loaded[split], revision, loaded[split]._fingerprint)


def hub_records(wanted: HubSet, root: Path) -> Iterator[Found]:
    """The rows as objects, one by one, or what is wrong with one that holds values that JSON does
    not have, such as images; nulls are absent, and names of classes are numbers.

    Raises InputError.
    """
    # As Arrow, because the data set's own rows would decode images and sounds.
    tables = open_set(wanted, root).data.with_format("arrow").iter(batch_size=BATCH_ROWS)
    return plain_rows(tables, f"hf:{wanted.name}")
