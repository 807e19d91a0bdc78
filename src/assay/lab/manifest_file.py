"""Reading and writing `manifest.json`; what stands in it is put together by `manifest`."""

import json
from typing import Any

from assay.errors import InputError
from assay.lab.listed import write_listed
from assay.lab.run_directory import RunDirectory
from assay.lab.stored import FIX, read_json

Manifest = dict[str, Any]
PUT_ASIDE = "put_aside"
"""Key under `time`: what a run no longer goes on from, see `aside`."""
TABLES = ("base_weights", "data", "stages", "evaluation")


class DamagedManifest(InputError):
    """A manifest that is no JSON, or whose parts are no tables."""


def write_manifest(run: RunDirectory, manifest: Manifest) -> None:
    """Write the manifest, whole or not at all."""
    text = json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"
    write_listed(run.path, run.manifest, text)


def read_manifest(run: RunDirectory) -> Manifest:
    """The manifest as it was written; empty for a run that did not get so far.

    Raises DamagedManifest.
    """
    file = run.manifest
    if not file.exists():
        return {}
    manifest = read_json(file, dict, DamagedManifest)
    for name in TABLES:
        if not isinstance(manifest.get(name, {}), dict):
            raise DamagedManifest(f"cannot be read: {name!r} is no table", file=file, fix=FIX)
    return manifest
