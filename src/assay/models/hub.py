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


class NoHubAccess(InputError):
    """Nothing can be uploaded: no token, or no name of a repository."""


class PushFailed(RunFailure):
    """The hub refused, or could not be reached; the folder is whole."""


def check_push(repository: str) -> None:
    """Raise NoHubAccess, before any work, for what cannot be uploaded."""
    try:
        validate_repo_id(repository)
    except HFValidationError as error:
        why = str(error).splitlines()[0]
        raise NoHubAccess(why, field="--push", fix="write OWNER/NAME") from error
    if not os.environ.get(TOKEN):
        fix = f"export {TOKEN}=... with a token of the hub that may write"
        raise NoHubAccess(f"{TOKEN} is not set", field="--push", fix=fix)


def push(folder: Path, repository: str) -> str:
    """Make the repository and upload the folder; returns its address. Raises PushFailed."""
    api = HfApi(token=os.environ.get(TOKEN))
    try:
        made = api.create_repo(repository, private=True, exist_ok=False)
        api.upload_folder(
            repo_id=made.repo_id, folder_path=folder, commit_message="Exported by Assay"
        )
    except (HfHubHTTPError, HTTPError, OSError, RuntimeError) as error:
        why = " ".join(str(error).split())
        raise PushFailed(
            f"{folder} is whole and was not pushed to {repository}: {why} "
            f"(push it yourself: hf upload {repository} {folder})"
        ) from error
    return str(made)
