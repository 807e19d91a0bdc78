"""Fingerprints of what a run is made of besides its data: reward, code, packages, machine.

Those of files and rows are in `data`, those of weights in `models`; `manifest` puts them together.
"""

import hashlib
import inspect
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, is_dataclass
from functools import partial
from importlib.metadata import distributions
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import torch

import assay
from assay.data.files import sha256_file
from assay.data.hashing import canonical_json, sha256_text
from assay.models.matmul import processor_name

PACKAGE = Path(assay.__file__).parent
_MODULE = re.compile(r"(?P<module>[A-Za-z_][\w.]*):[A-Za-z_]\w*")
"""How a worker's function is written: "package.module:function"."""


def prompts_sha256(prompts: Iterable[Sequence[int]]) -> str:
    """One hash of rendered prompts, as token ids, in their order."""
    digest = hashlib.sha256()
    for tokens in prompts:
        digest.update(sha256_text(canonical_json(list(tokens))).encode("ascii"))
    return digest.hexdigest()


def source_sha256(function: Callable[..., Any]) -> str:
    """The sha256 of the source of the modules that `function` is made of.

    The module that defines it, or its class, and those of the functions it holds: in a closure, in
    a partial, in the fields of a dataclass, where "package.module:name" names one too.
    """
    sources = dict(sorted(_sources(function).items()))
    if len(sources) == 1:
        return sha256_text(*sources.values())
    return sha256_text(canonical_json(sources))


def _sources(value: Any) -> dict[str, str]:
    """Source by module of everything that a function, or an object in its place, calls."""
    plain = inspect.unwrap(value)
    module = inspect.getmodule(plain) or inspect.getmodule(type(plain))
    assert module is not None, f"{value} has no module"
    found = {module.__name__: inspect.getsource(module)}
    for held in _held(plain):
        if callable(held) and not isinstance(held, type):
            found |= _sources(held)
        elif isinstance(held, str) and (named := _MODULE.fullmatch(held)):
            spec = find_spec(named["module"])
            if spec is not None and spec.origin is not None:
                found[named["module"]] = Path(spec.origin).read_text(encoding="utf-8")
    return found


def _held(plain: Any) -> list[Any]:
    """What a function closes over, a partial was given, or an instance of a dataclass holds."""
    if isinstance(plain, partial):
        return [plain.func, *plain.args, *plain.keywords.values()]
    if is_dataclass(plain):
        return [getattr(plain, field.name) for field in fields(plain)]
    return [cell.cell_contents for cell in getattr(plain, "__closure__", None) or ()]


def code_fingerprint(package: Path = PACKAGE) -> dict[str, str]:
    """`source_sha256` of all Python files of a package; `commit` and `diff_sha256` under git.

    `diff_sha256` is that of the changes against the commit, empty when there are none. A package
    that git does not track, as one installed into an environment, has the first alone.
    """
    files = sorted(package.rglob("*.py"))
    hashes = [[file.relative_to(package).as_posix(), sha256_file(file)] for file in files]
    found = {"source_sha256": sha256_text(canonical_json(hashes))}
    commit = _git(package, "rev-parse", "HEAD")
    if commit is None or _git(package, "ls-files", "--error-unmatch", "__init__.py") is None:
        return found
    diff = _git(package, "diff", "--no-ext-diff", "HEAD", "--", ".") or ""
    return {
        **found,
        "commit": commit.strip(),
        "diff_sha256": sha256_text(diff) if diff else "",
    }


def packages() -> dict[str, str]:
    """Versions of all installed distributions by name."""
    # An interrupted installation leaves a folder behind that has no name.
    return dict(sorted((d.name, d.version) for d in distributions() if d.name))


def machine() -> dict[str, Any]:
    """What the run is computed on; resuming is exact on the same only."""
    gpus = range(torch.cuda.device_count())
    return {
        "platform": platform.platform(),
        "python": platform.python_version(),
        "cpu": processor_name(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(psutil.virtual_memory().total / 2**30, 1),
        "gpus": [torch.cuda.get_device_name(i) for i in gpus],
        "torch_threads": torch.get_num_threads(),
    }


def _git(folder: Path, *arguments: str) -> str | None:
    """What git prints; None where there is no git, no repository or no such thing in it."""
    git = shutil.which("git")
    if git is None:
        return None
    command = [git, "-C", str(folder), *arguments]
    # An environment that points git elsewhere (inside a hook) would name another repository.
    clean = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    done = subprocess.run(command, capture_output=True, check=False, env=clean)
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else None
