"""Uploads a folder as a new private repository of the Hugging Face hub, with HF_TOKEN.

A repository that exists is never written to.
"""

import os
from pathlib import Path

from httpx import HTTPError
from huggingface_hub import HfApi
from huggingface_hub.errors import HfHubHTTPError, HFValidationError
from huggingface_hub.utils import validate_repo_id

from assay.errors import InputError, RunFailure

TOKEN = "HF_TOKEN"


def check_push(repository: str) -> None:
    """Raise InputError, before any work, for what cannot be uploaded."""
    try:
        validate_repo_id(repository)
    except HFValidationError as error:
        why = str(error).splitlines()[0]
        raise InputError(why, field="--push", fix="write OWNER/NAME") from error
    if not os.environ.get(TOKEN):
        fix = f"export {TOKEN}=... with a token of the hub that may write"
        raise InputError(f"{TOKEN} is not set", field="--push", fix=fix)


def push(folder: Path, repository: str) -> str:
    """Make the repository and upload the folder; returns its address. Raises RunFailure."""
    api = HfApi(token=os.environ.get(TOKEN))
    try:
        made = api.create_repo(repository, private=True, exist_ok=False)
        api.upload_folder(
            repo_id=made.repo_id, folder_path=folder, commit_message="Exported by Assay"
        )
    except (HfHubHTTPError, HTTPError, OSError, RuntimeError) as error:
        why = " ".join(str(error).split())
        raise RunFailure(
            f"{folder} is whole and was not pushed to {repository}: {why} "
            f"(push it yourself: hf upload {repository} {folder})"
        ) from error
    return str(made)
