"""Reads and writes `manifest.json`. Its content is assembled in `lab.session.manifest`."""

from collections.abc import Iterator, Mapping
from typing import Any

from assay.runs.run_directory import RunDirectory
from assay.runs.run_files import FIX, DamagedFile, read_json, write_json

Manifest = dict[str, Any]
PUT_ASIDE = "put_aside"
"""Key under `time`: what a run no longer goes on from, see `lab.run.recorder`."""
WENT_ON = "went_on"
"""Key under `time`: from which checkpoints of their own tools of stages went on."""
CHECKED = "checked"
"""Key of the findings before the run, see `lab.check.all_checks`; they are no fingerprints."""
IMPORTED = "imported"
"""Key of what is known of a run that another tool made, see `lab.run.trainer_import`."""
SEEN_ANSWERS = "has_seen_answers"
"""Key of `base_weights` where a model chose its answers by the items' own: a bound, no result."""
KINDS = {str: "text", dict: "table"}
TABLES = ("base_weights", "data", "stages", "evaluation", IMPORTED, CHECKED)


def write_manifest(run: RunDirectory, manifest: Manifest) -> None:
    """Write the manifest, whole or not at all."""
    write_json(run.manifest, manifest, run.path)


def read_manifest(run: RunDirectory) -> Manifest:
    """The manifest as it was written; empty for a run that did not get so far.

    Raises DamagedFile.
    """
    file = run.manifest
    if not file.exists():
        return {}
    manifest = read_json(file, dict)
    for path, kind, value in _used(manifest):
        if not isinstance(value, kind):
            problem = f"cannot be read: {path!r} is no {KINDS[kind]}"
            raise DamagedFile(problem, file=file, fix=FIX)
    return manifest


def _used(manifest: Manifest) -> Iterator[tuple[str, type, Any]]:
    """Parts of the manifest that lists of runs need, with their types; each is asked for once those
    before it are known to be of theirs."""
    for name in TABLES:
        yield name, dict, manifest.get(name, {})
    base = manifest.get("base_weights", {})
    for name in base.keys() & {"checkpoint", "source", "sha256"}:
        yield f"base_weights.{name}", str, base[name]
    for table in ("data", "stages", "evaluation"):
        for name, value in manifest.get(table, {}).items():
            yield f"{table}.{name}", dict, value
    for name, stage in manifest.get("stages", {}).items():
        yield f"stages.{name}.start", str, stage.get("start", "")
        yield f"stages.{name}.adapt", dict, stage.get("adapt", {})
        yield f"stages.{name}.from", dict, stage.get("from", {})


def overridden(manifest: Mapping[str, Any]) -> str:
    """The reason for overriding errors of the checks; "" if there were none."""
    return str(manifest.get(CHECKED, {}).get("despite", ""))


def saw_answers(manifest: Mapping[str, Any]) -> bool:
    """Whether the run's model chose its answers by the items' right ones."""
    return bool(manifest.get("base_weights", {}).get(SEEN_ANSWERS))
