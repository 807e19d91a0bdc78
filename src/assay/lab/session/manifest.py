"""Assembles the manifest of a run: the fingerprints of everything that its results depend on.

Its nested table has the keys that `judge.confounds` compares. A resumed run must have the same
data, weights, prompts, rewards and settings; changes of code, packages or machine are only noted,
because they may change the last bits of numbers. Fingerprints are computed in `data` and `models`.
"""

import hashlib
import json
import os
import platform
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import psutil
import torch

import assay
from assay.data.files import canonical_json, hash_contents, hash_ids, sha256_file, sha256_text
from assay.data.hub_rows import open_set
from assay.data.renderings.packed_rows import remembered
from assay.data.row import Row
from assay.data.splits import Mixture
from assay.engines.register import packages_of, recorded
from assay.errors import InputError
from assay.experiment.data_tables import DataSpec
from assay.experiment.reward_tables import Reward, RewardPart, parts_of
from assay.experiment.selection_tables import MADE_BY
from assay.experiment.stage_tables import OTHER_RUN, StageSpec
from assay.experiment.tables import EngineSpec
from assay.judge.confounds import differences
from assay.lab.data.prepare import DataSet, hub_set, rendering_of
from assay.lab.data.run_rows import files_of, provenance
from assay.lab.models.language_learner import path_table
from assay.lab.models.learner import encoded_by, question
from assay.lab.session.evaluation import Evaluation, Trained, trained_rows
from assay.lab.session.reward_parts import (
    BUILT_IN,
    asked_helpers,
    rewards_in,
    settings_of,
    source_sha256,
    sources_of,
    table_part,
)
from assay.lab.session.session import Session
from assay.lab.session.tool_stage import translations
from assay.models.matmul import processor_name
from assay.runs.run_directory import (
    CHECKED,
    IMPORTED,
    Manifest,
    RunDirectory,
    read_manifest,
    write_manifest,
)
from assay.runs.run_names import RunNotFound, checkpoint_directory, run_checkpoint, stage_start
from assay.tasks.running import DEADLINE_SECONDS
from assay.tasks.task import RewardFunction, Task, made_source, reward_version, task_fingerprint
from assay.trainers.register import trainer_packages

PACKAGE = Path(assay.__file__).parent


def prompts_sha256(prompts: Iterable[Any]) -> str:
    """One hash of prompts as JSON values, such as lists of token ids, in their order."""
    digest = hashlib.sha256()
    for prompt in prompts:
        digest.update(sha256_text(canonical_json(prompt)).encode("ascii"))
    return digest.hexdigest()


def code_fingerprint(package: Path = PACKAGE) -> dict[str, str]:
    """`source_sha256` of all Python files of a package; `commit` and `diff_sha256` under git.

    `diff_sha256` is that of the changes against the commit, empty when there are none. A package
    that git does not track, as one installed into an environment, has the first alone.
    """
    files = sorted(package.rglob("*.py"))
    hashes = [[file.relative_to(package).as_posix(), sha256_file(file)] for file in files]
    fingerprint = {"source_sha256": sha256_text(canonical_json(hashes))}
    commit = _git(package, "rev-parse", "HEAD")
    if commit is None or _git(package, "ls-files", "--error-unmatch", "__init__.py") is None:
        return fingerprint
    diff = _git(package, "diff", "--no-ext-diff", "HEAD", "--", ".") or ""
    return {
        **fingerprint,
        "commit": commit.strip(),
        "diff_sha256": sha256_text(diff) if diff else "",
    }


def packages() -> dict[str, str]:
    """Versions of all installed distributions by name."""
    # An interrupted installation leaves a folder behind that has no name.
    return dict(sorted((d.name, d.version) for d in distributions() if d.name))


def machine() -> dict[str, Any]:
    """The machine and its settings; resuming is bit-exact on the same ones only."""
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


def ranks_table(engine: EngineSpec | None) -> dict[str, int | bool]:
    """How many processes train, where they are several, and whether it was said how."""
    if engine is None or engine.ranks == 1:
        return {}
    sharded = {} if engine.sharded is None else {"sharded": engine.sharded}
    return {"ranks": engine.ranks, **sharded}


def _git(folder: Path, *arguments: str) -> str | None:
    """The output of git; None without git, a repository or a result."""
    git = shutil.which("git")
    if git is None:
        return None
    command = [git, "-C", str(folder), *arguments]
    # An environment that points git elsewhere (inside a hook) would name another repository.
    clean = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    done = subprocess.run(command, capture_output=True, check=False, env=clean)
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else None


NOTED = ("code", "packages", "machine", "time", "sources")
"""Parts that may differ when a run is resumed."""

WITHOUT_EFFECT = {"other_rendering_than", "validation", "validation_every"}
WITHOUT_EFFECT |= {"reward_workers", "reward_concurrency"}
"""Keys of a stage that change no result: what is allowed, what is measured beside training, and how
many rewards run side by side."""


UNCOUNTED = ("name", "about", IMPORTED, CHECKED)
"""Differences that do not stop a run from being resumed."""


def make_manifest(session: Session) -> Manifest:
    """The fingerprints of a run as it would be executed now."""
    experiment = session.experiment
    # Runs without helper models have the manifest that they had before there were any.
    helpers = {"helpers": session.helpers.recorded()} if experiment.helpers else {}
    unlike = {
        each.name: {"unlike": {one.key: one.what for one in made.differences}}
        for each, made in translations(session)
    }
    weights = {"source": session.experiment.model, "sha256": session.learner.fingerprint}
    kind, _, name = session.experiment.model.partition(":")
    if kind == "run":
        # A name may come to mean a later run; the folder says which checkpoint it was.
        root = session.run.root
        weights["checkpoint"] = run_checkpoint(name, root)[2].relative_to(root).as_posix()
    return {
        **about_run(session),
        **helpers,
        **recorded(experiment, session.precision),
        "base_weights": weights,
        "data": {name: data_table(session, name, spec) for name, spec in experiment.data.items()},
        **opened_sets(session),
        "stages": {
            name: {**stage_table(session, spec), **unlike.get(name, {})}
            for name, spec in experiment.stage.items()
        },
        "evaluation": {
            name: {
                **evaluation_table(session, made),
                "prompts_sha256": prompts_sha256(
                    map(session.learner.encoder(made.spec).plain, made.contexts)
                ),
            }
            for name, made in session.evaluations.items()
        },
        "machine": {
            **machine(),
            **ranks_table(experiment.engine),
            "precision": session.precision.record(),
            **path_table(session.learner),
        },
    }


def about_run(session: Session) -> Manifest:
    """The common parts of every manifest: notes, code, packages, machine."""
    experiment = session.experiment
    source = task_fingerprint(experiment.task, session.run.root)  # of one outside the package
    agent = getattr(session.task, "agent", None)
    return {
        "name": experiment.name,
        "about": experiment.about,
        "time": {"started": datetime.now(UTC).isoformat(timespec="seconds")},
        "seed": session.seed,
        "task": experiment.task,
        **({"task_source": source} if source else {}),
        **({} if agent is None else {"agent": agent.record}),
        "as_reported": experiment.as_reported,
        "code": code_fingerprint(),
        "packages": packages() | packages_of(experiment) | trainer_packages(experiment),
        "machine": machine(),
    }


def check_manifest(run: RunDirectory, manifest: Manifest) -> None:
    """Compare the run's manifest with that of a resuming process, and note what is different.

    Raises InputError, naming the first difference, where the results would be those of other
    data, weights or settings.
    """
    stored = read_manifest(run)
    now = json.loads(json.dumps(manifest))
    if CHECKED in now:
        stored.setdefault(CHECKED, now[CHECKED])
    # The lab may have been renamed or explained better since; neither changes a result.
    changes = [d for d in differences(stored, now) if d.path.split(".")[0] not in UNCOUNTED]
    noted = [d for d in changes if d.path.split(".")[0] in NOTED]
    changed = [d for d in changes if d not in noted]
    # A user's file is the cause of what else is different.
    changed.sort(key=lambda d: not d.path.startswith("task_source"))
    if changed:
        first, others = changed[0], len(changed) - 1
        problem = f"{first.path} was {first.control!r} and is now {first.other!r}"
        also = f"; {others} more" if others else ""
        fix = f"restore it, or start another run with --new{also}"
        raise InputError(problem, file=run.path, fix=fix)
    conditions = {d.path: [d.control, d.other] for d in noted if not d.path.startswith("time.")}
    resumed = {"at": now["time"]["started"], "changed": conditions}
    stored["time"].setdefault("resumed", []).append(resumed)
    write_manifest(run, stored)


def data_table(session: Session, name: str, spec: DataSpec) -> dict[str, Any]:
    """The table of a data set with the fingerprints of its source, rows and prompts."""
    made = session.sets[name]
    if isinstance(made.order, Mixture):
        ends = [*(part.start for part in made.order.parts[1:]), len(made.train)]
        return {
            **spec.model_dump(mode="json", exclude_none=True, exclude_defaults=True),
            "sources": {
                part.name: {"rows": end - part.start, "epoch_rows": part.share}
                for part, end in zip(made.order.parts, ends, strict=True)
            },
            "total": made.total,
            "train": {"rows": len(made.train), "epoch_rows": made.order.count},
            "dev": {"rows": len(made.dev)},
            **({"test": {"rows": len(made.test)}} if made.test else {}),
            "dropped": {},
        }
    rows = made.rows
    encoder = session.learner.encoder(rendering_of(session.experiment, name))

    def prompts() -> str:
        asked = (encoder.prompt(row, question(session.task, row)) for row in rows)
        return prompts_sha256(map(encoder.plain, asked))

    made_table, made_by = {}, encoded_by(session.task, encoder)
    if (maker := made_source(session.task, spec.source)) is not None:
        scheme, _, table = (spec.source or "").partition(":")
        made_table = {scheme: maker.record(session.experiment, table, session.run.root)}
    return {
        **spec.model_dump(mode="json", exclude_none=True),
        **_source(session, spec),
        **made_table,
        **({} if made.chosen is None else {"selection": made.chosen.record}),
        "contents_sha256": remembered("contents", rows, "", lambda: hash_contents(rows)),
        "prompts_sha256": remembered("prompts", rows, made_by, prompts),
        **_counts(made),
        **({"groups": figures} if (figures := group_figures(made.train)) else {}),
        **({"teachers": teachers} if (teachers := teachers_of(rows)) else {}),
    }


def teachers_of(rows: Sequence[Row]) -> dict[str, int]:
    """How many rows each teacher made, by its source and fingerprint; empty where none did."""
    made = (row.extra.get(MADE_BY) for row in rows)
    named = (each for each in made if isinstance(each, Mapping) and "teacher" in each)
    return dict(Counter(f"{each['teacher']} {each.get('fingerprint', '')}" for each in named))


def group_figures(rows: Sequence[Row]) -> dict[str, float]:
    """Rewards of stored candidates: their mean, and how many candidates and how many queries have a
    positive one; empty where no row holds any.

    Shares of candidates and of queries are different numbers: a query with one right candidate of
    eleven counts once among the queries.
    """
    stored = [each for row in rows if (each := row.extra.get("candidates"))]
    groups = [[c["reward"] for c in each if c.get("reward") is not None] for each in stored]
    rewards = [reward for group in groups for reward in group]
    if not rewards:
        return {}
    return {
        "queries": len(groups),
        "candidates": len(rewards),
        "mean_reward": sum(rewards) / len(rewards),
        "positive_queries": sum(any(r > 0 for r in group) for group in groups),
        "positive_candidates": sum(r > 0 for r in rewards),
        "tied_queries": sum(len(set(group)) < 2 for group in groups),
    }


def opened_sets(session: Session) -> dict[str, Any]:
    """Which commits of the hub its data sets were; their rows are fingerprinted in `data`."""
    sets = {}
    for name, spec in session.experiment.data.items():
        if (spec.source or "").startswith("hf:"):
            opened = open_set(hub_set(spec), session.run.root)
            sets[name] = {"revision": opened.revision, "fingerprint": opened.fingerprint}
    return {"sources": sets} if sets else {}


def _source(session: Session, spec: DataSpec) -> dict[str, Any]:
    """A file is known by what it holds, not by where it lies; a run by its id as well."""
    root = session.run.root
    kind, _, name = (spec.source or "").partition(":")
    identity: dict[str, Any] = {}
    if kind == "path":
        identity = {"source": kind, "file_sha256": sha256_file(root / name)}
    elif kind == "run" and spec.samples is not None:
        identity = {"source": kind, **provenance(root, name, spec.samples)}
    for key in ("pass_rate", "examples"):
        if (table := getattr(spec, key)) is not None:
            values = table.model_dump(mode="json", exclude_none=True)
            identity[key] = {**values, **provenance(root, table.run, table)}
    return identity


def _counts(made: DataSet) -> dict[str, Any]:
    sides = {"train": made.train, "dev": made.dev} | ({"test": made.test} if made.test else {})
    return {
        "total": made.total,
        **{k: {"rows": len(rows), "row_ids_sha256": hash_ids(rows)} for k, rows in sides.items()},
        "dropped": {reason: len(ids) for reason, ids in made.dropped.items()},
    }


def stage_table(session: Session, spec: StageSpec) -> dict[str, Any]:
    """The table of a stage, its rendering and rewards with their fingerprints."""
    encoder = session.learner.encoder(spec)
    table = spec.model_dump(mode="json", exclude_none=True, exclude=WITHOUT_EFFECT)
    table["rendering"] = {"name": encoder.name, "sha256": encoder.fingerprint}
    if spec.start.startswith(OTHER_RUN):
        table["from"] = _other_start(session, spec)
    if table.get("reward") is not None:
        table["reward"] = _rewards(session, spec.reward)  # type: ignore[union-attr]
    return table


def _other_start(session: Session, spec: StageSpec) -> dict[str, str]:
    """The run and the checkpoint of a start in another run, and the sha256 of its weights."""
    run, reference = stage_start(session.run, spec)
    if reference.stage is None:
        return {"run": str(run), "sha256": session.learner.fingerprint}
    folder = checkpoint_directory(run, reference)
    weights = {file.name: sha256_file(file) for file in sorted(folder.glob("*.safetensors"))}
    place = folder.relative_to(run.root).as_posix()
    return {"run": str(run), "checkpoint": place, "sha256": sha256_text(canonical_json(weights))}


def _rewards(session: Session, spec: Reward) -> Mapping[str, dict[str, Any]]:
    """Source and settings of each part; a part that is a bare weight has the weight alone."""
    rewards = {}
    for name, part in parts_of(spec).items():
        made = table_part(session.task, part, session.run.root)
        told = {} if part.kind == name else {"kind": part.kind}
        also = {"value", "options", "when"}
        told |= part.model_dump(mode="json", include=also, exclude_defaults=True)
        rewards[name] = {
            "weight": part.weight,
            **told,
            **_known_by(session.task, part, made.reward),
        }
    return rewards


def _known_by(task: Task, part: RewardPart, reward: RewardFunction) -> dict[str, Any]:
    """What a reward is known by: a built-in one by its version, a user's by its source.

    The text of a built-in reward changes with each tidying of the package, its values only with
    its version, which a test holds (`tests/tasks/test_reward_versions.py`).
    """
    if settings := settings_of(reward):
        return {"settings_sha256": sha256_text(canonical_json(settings))}
    if {module.split(".")[0] for module in sources_of(reward)} <= BUILT_IN:
        return {"version": reward_version(task, part.kind)}
    return {"source_sha256": source_sha256(reward)}


def evaluation_table(session: Session, made: Evaluation) -> dict[str, Any]:
    """The fingerprints of an evaluation that do not depend on the model under test."""
    record = asdict(made.record)
    apart = {key: record[key] for key in record.keys() - {"name", "items", "seed", "shared"}}
    table = dict(sorted(apart.items()))
    if judges := asked_helpers(session.helpers, rewards_in(made.score).values()):
        table["judges"] = judges
    if made.spec.reward_deadline != DEADLINE_SECONDS:
        table["reward_deadline"] = made.spec.reward_deadline
    if made.spec.reward is not None:
        table["reward"] = _rewards(session, made.spec.reward)
    return table


def rows_still_there(session: Session) -> Trained | None:
    """The rows that the run trained on; None where its data is gone or no longer the same."""
    root, noted = session.run.root, read_manifest(session.run).get("data", {})
    for name, spec in session.experiment.data.items():
        if spec.mix is not None:
            continue
        kind, _, file = (spec.source or "").partition(":")
        if kind == "path" and not (root / file).is_file():
            return None
        if kind == "run":
            try:
                if spec.samples is None or not files_of(root, file, spec.samples):
                    return None
            except RunNotFound:
                return None
        chosen = spec.take and spec.take.selection
        if chosen is not None and not (root / chosen).is_file():
            return None
        made = session.sets[name]
        if noted.get(name, {}).get("contents_sha256") != hash_contents(made.rows):
            return None
    return trained_rows(session.experiment.stage, session.sets)


def check_base(session: Session) -> None:
    """Raise InputError where the run's base model is another than when the run was made."""
    noted = read_manifest(session.run).get("base_weights", {}).get("sha256")
    if noted is not None and noted != session.learner.fingerprint:
        problem = f"{session.experiment.model} holds other weights than when {session.run} was made"
        raise InputError(problem, field="model", fix="restore them, or start another run")
