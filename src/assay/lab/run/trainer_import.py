"""Takes over a run that TRL, verl or ms-swift made elsewhere: `assay import`.

Of a folder that `assay export` made everything is known, and of one made without Assay what the
tool wrote into it: the log, completions, checkpoints, and settings that have words here. What is
not known is written as unknown, which equals nothing but itself. The run is made under a hidden
name that it loses once it is whole.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

from assay.data.hub_names import with_scheme
from assay.data.json_files import read_jsonl
from assay.data.row_json import row_of
from assay.errors import InputError
from assay.experiment.checkpoint_reference import parse_checkpoint
from assay.experiment.experiment import Experiment
from assay.experiment.read_file import read_experiment
from assay.experiment.stage_tables import GrpoStage
from assay.experiment.tables import EvaluateSpec
from assay.experiment.toml_write import experiment_toml
from assay.lab.monitor.guards import GuardWatch
from assay.lab.monitor.observer import Observer
from assay.lab.run.recorder import RunRecorder
from assay.lab.run.trainer_export import EXPERIMENT, MANIFEST, TRANSLATION
from assay.lab.run.trainer_records import Following, begin
from assay.lab.setup.language_learner import language_model, model_folder
from assay.lab.setup.learner import question
from assay.lab.setup.manifest import WITHOUT_EFFECT, about_run
from assay.lab.setup.reward_process import ROWS
from assay.lab.setup.session import Session
from assay.lab.setup.tool_stage import stage_alone
from assay.models.supported import read_config
from assay.runs.checkpoints import steps_in
from assay.runs.manifest_file import IMPORTED, Manifest, write_manifest
from assay.runs.registry import check_index, note_run
from assay.runs.run_directory import RunDirectory, drafted_run
from assay.runs.run_names import seed_or_damage
from assay.runs.same_experiment import begun
from assay.runs.status import hold_lab, stored_status, write_status
from assay.tasks.task import task
from assay.trainers.backwards import (
    CANONICAL,
    changed,
    likelihood,
    read_back,
    updates_of,
    with_model,
)
from assay.trainers.outputs.output import DamagedOutput, NotItsFolder, Output, Step
from assay.trainers.outputs.plain_folders import Found, find, read_object
from assay.trainers.register import MODEL, TRAINERS
from assay.trainers.settings import Exported
from assay.trainers.translation import Difference
from assay.trainers.verl_table import ROLLOUT

UNKNOWN = "unknown"
DATA = "train"
"""The data set of a run that was made without Assay."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
NOT_TOLD = ("data", "reward", "rendering")
"""Of a stage that was made without Assay: what no folder tells in Assay's words."""


@dataclass(frozen=True, slots=True)
class Request:
    """What the user says."""

    tool: str
    folder: Path
    name: str | None = None
    """Of the run."""
    stage: str | None = None
    """Of a folder that was made without Assay: what its stage is called."""
    model: str | None = None
    """What it started from, where the folder does not say."""
    task: str = "chat"
    configuration: Path | None = None
    log: Path | None = None
    """verl's, where they lie elsewhere."""


@dataclass(frozen=True, slots=True)
class Imported:
    """What was taken over."""

    run: RunDirectory
    stage: str
    steps: int
    checkpoints: tuple[int, ...]
    unknown: tuple[str, ...]
    differences: Mapping[str, str]
    left_out: tuple[str, ...]
    """Checkpoints that are not whole, or lie inside a round."""
    evaluations: tuple[str, ...]
    """Of the experiment's file, which `assay resume` measures."""
    unasked: tuple[str, ...]
    """Tables of the experiment's file that belong to a training."""


@dataclass(frozen=True)
class Origin:
    """What is known of a run before it is recorded."""

    experiment: Experiment
    stage: str
    seed: int | None
    output: Output
    package: str
    manifest: Manifest
    """The fingerprints that the folder holds."""
    configuration: Mapping[str, Any]
    unknown: tuple[str, ...] = ()
    """By their paths in the experiment file."""
    differences: Mapping[str, str] = field(default_factory=dict)
    rows: Path | None = None
    """The rows that the folder was exported with."""
    unasked: tuple[str, ...] = ()
    """Tables of the exported file that belong to a training, and so are asked no more."""
    likelihood: bool = True
    """Whether the loss of an sft stage is the mean of -log p over the trained tokens."""


def import_run(root: Path, request: Request, observer: Observer) -> Imported:
    """Take over the run in a folder. Raises NotItsFolder, InputError for a name that is taken and
    for a checkpoint that cannot be opened; nothing is left of the run then."""
    if not request.folder.is_dir():
        raise NotItsFolder("no such folder", file=request.folder)
    for option, name in (("--name", request.name), ("--stage", request.stage)):
        if name is not None and not NAME.fullmatch(name):
            fix = "letters, digits, '_', '-' and '.', a letter or a digit first"
            raise InputError(f"{name!r} is no name", field=option, fix=fix)
    task(request.task, root)
    exported = (request.folder / TRANSLATION).is_file()
    origin = exported_origin(root, request) if exported else plain_origin(root, request)
    name = origin.experiment.name
    with hold_lab(root):
        if any(origin.seed in (None, seed_or_damage(run)) for run in begun(root, name)):
            raise InputError(f"a run named {name!r} exists", field="--name", fix="choose another")
        check_index(root)
    text, seed = experiment_toml(origin.experiment), origin.seed or 0
    with drafted_run(root, name, seed=seed, spec=text, new=True) as (draft, run):
        session = Session(origin.experiment, draft, seed, observer)
        following = recorded(session, origin)
        if not following.step:
            raise NotItsFolder("its log has no step", file=request.folder)
        write_manifest(draft, manifest_of(session, origin, run, request.folder))
        now = datetime.now(UTC).isoformat(timespec="seconds")
        write_status(
            draft.path, replace(stored_status(draft.path), status="finished", finished=now)
        )
        saved = tuple(steps_in(draft.checkpoints(origin.stage)))
    note_run(run)
    given = following.step, saved, origin.unknown, origin.differences, left_out(origin.output)
    return Imported(run, origin.stage, *given, (*origin.experiment.evaluate,), origin.unasked)


def left_out(output: Output) -> tuple[str, ...]:
    """The tool's checkpoints that were not taken over, by their names."""
    taken = {part for each in output.checkpoints() for part in (each.folder, each.folder.parent)}
    found = [
        each for kind in ("checkpoint-*", "global_step_*") for each in output.folder.glob(kind)
    ]
    return tuple(sorted(each.name for each in found if each not in taken))


def recorded(session: Session, origin: Origin) -> Following:
    """The tool's steps, samples and checkpoints in the run. Raises InputError."""
    stage = session.experiment.stage[origin.stage]
    recorder = RunRecorder(
        session.run,
        origin.stage,
        stage.steps or 0,
        frozenset(),
        session.observer,
        add_files=lambda folder: session.learner.complete(session.run, stage, folder),
        after_checkpoint=lambda policy, step: None,
        guards=GuardWatch({}, origin.stage, {}, []),
        due=lambda step: "",
    )
    following = begin(session, recorder, origin.output)
    following.likelihood = origin.likelihood
    if origin.rows is not None:
        rows = [row_of(record.value) for record in read_jsonl(origin.rows)]
        encoder, task = language_model(session.learner, "assay import").encoder(stage), session.task
        following.contexts = {row.id: encoder.prompt(row, question(task, row)) for row in rows}
    session.observer.stage(origin.stage, stage.method, 0, stage.steps or 0)
    following.take(ended=True)
    return following


def exported_origin(root: Path, request: Request) -> Origin:
    """Of a folder that `assay export` made. Raises NotItsFolder."""
    folder = request.folder
    about, trainer = read_object(folder / TRANSLATION), TRAINERS[request.tool]
    if missing := {"tool", "stage", "settings", "differences"} - about.keys():
        problem = f"lacks {min(missing)!r}"
        raise DamagedOutput(problem, file=folder / TRANSLATION, fix="export it again")
    tools = {each.package.partition("==")[0]: name for name, each in TRAINERS.items()}
    tool = tools.get(str(about["tool"]).partition("==")[0])
    if tool is None:
        problem = f"tool is {about['tool']!r}, which is none of {', '.join(tools)}"
        raise DamagedOutput(problem, file=folder / TRANSLATION, fix="export it again")
    if tool != request.tool:
        problem = f"was exported for {TRAINERS[tool].title}"
        raise NotItsFolder(problem, file=folder, fix=f"--from {tool}")
    if not (folder / "output").is_dir():
        raise NotItsFolder("was exported and not trained yet", file=folder, fix="bash run.sh")
    whole, name = read_experiment(folder / EXPERIMENT), about["stage"]
    stage = whole.stage[name].model_copy(update={"trainer": request.tool})
    assert isinstance(stage, Exported)
    known = read_object(folder / MANIFEST) if (folder / MANIFEST).is_file() else {}
    model = request.model or whole.model
    kind, _, place = model.partition(":")
    if kind == "path" and not (root / place).exists() and stage.start == "base":
        model = f"path:{(folder / MODEL).resolve()}"
    measured, unasked = measurable(whole, name)
    own = {"name": request.name or f"{whole.name}-{request.tool}", "model": model}
    experiment = stage_alone(whole, name, stage).model_copy(update={**own, "evaluate": measured})
    updates = (
        stage.updates.minibatches * stage.updates.epochs if isinstance(stage, GrpoStage) else 1
    )
    unknown = () if known else tuple(f"data.{each}" for each in whole.data)
    rows = trainer.tables[stage.method]
    trained = find(tool, folder / "output").configuration
    differences = [Difference(each["key"], each["what"]) for each in about["differences"]]
    differences += (others := changed(tool, rows, trained, about["settings"]))
    if known:
        table = known["stages"][name]
        table["unlike"] = {**table.get("unlike", {}), **{each.key: each.what for each in others}}
    return Origin(
        experiment,
        name,
        known.get("seed", whole.seeds[0]),
        trainer.output(folder / "output", updates),
        about["tool"],
        known,
        about["settings"],
        (*unknown, "machine"),
        {each.key: each.what for each in differences},
        file if (file := folder / ROWS).is_file() else None,
        unasked,
        likelihood({**about["settings"], **trained}, others),
    )


def measurable(whole: Experiment, stage: str) -> tuple[dict[str, EvaluateSpec], tuple[str, ...]]:
    """What a trained stage can still be measured on, at its own checkpoints and the base; and the
    tables that choose checkpoints or stop a run, which is over."""
    found, unasked = {}, []
    for name, spec in whole.evaluate.items():
        references = {text: parse_checkpoint(text) for text in spec.checkpoints}
        own = tuple(
            text
            for text, each in references.items()
            if each and each.rule is None and each.stage in (None, stage)
        )
        if spec.role == "report" and own:
            found[name] = spec.model_copy(update={"checkpoints": own})
        else:
            unasked.append(f"evaluate.{name}")
    unasked += [f"guard.{name}" for name in whole.guard]
    unasked += [f"milestone.{name}" for name in whole.milestone]
    return found, tuple(unasked)


def plain_origin(root: Path, request: Request) -> Origin:
    """Of a folder that was made without Assay. Raises NotItsFolder, DamagedOutput, and InputError
    where the folder does not say what it started from."""
    found = find(request.tool, request.folder, request.configuration, request.log)
    model = model_source(request, found, root)
    config = CANONICAL[request.tool](found.configuration)
    config = with_model(config, read_config(model_folder(model, root)))
    output, name = found.output(updates_of(config)), request.stage or found.method
    steps = list(output.steps(ended=True))
    given: dict[str, Any] = {"method": found.method, "data": DATA, "start": "base"}
    given |= {"trainer": request.tool, **adapt_keys(found)}
    given |= {"reward": UNKNOWN, **groups_of(steps, config)} if found.method == "grpo" else {}
    trainer = TRAINERS[request.tool]
    told = read_back(
        request.tool, trainer.tables[found.method], config, given, len(steps) and steps[-1].number
    )
    seed = config.get("seed")
    experiment = Experiment(
        name=request.name or run_name(request.folder),
        about=f"Made by {trainer.title} without Assay",
        model=model,
        task=request.task,
        # Tools sample from a part of the softmax by default, which a stage of Assay's may not.
        as_reported=isinstance(told.stage, GrpoStage) and not told.stage.sampling.is_full,
        seeds=(seed if isinstance(seed, int) else 0,),
        data={DATA: {"source": f"path:{UNKNOWN}", "format": "messages"}},  # type: ignore[dict-item]
        stage={name: told.stage},
    )
    keys = [key for key in (*NOT_TOLD, *told.unknown) if key != "reward" or "reward" in given]
    unknown = [f"stage.{name}.{key}" for key in keys] + ["machine"]
    unknown += [] if isinstance(seed, int) else ["seeds"]
    unknown += [] if found.configuration else [f"everything that {trainer.title} was told"]
    return Origin(
        experiment,
        name,
        seed if isinstance(seed, int) else None,
        output,
        found.package or f"{trainer.title}, version unknown",
        {},
        found.configuration,
        tuple(unknown),
        {each.key: each.what for each in told.differences},
        likelihood=likelihood(config, told.differences),
    )


def groups_of(steps: Sequence[Step], config: Mapping[str, Any]) -> Mapping[str, int]:
    """The groups of a step as its completions show them, where the configuration does not tell."""
    answers = next((each.answers for each in steps if each.answers), ())
    if not answers or {"num_generations", f"{ROLLOUT}.n"} & config.keys():
        return {}
    sizes = [len([*members]) for _, members in groupby(answers, lambda each: each.prompt)]
    return {"group": max(sizes), "prompts": max(1, len(answers) // max(sizes))}


def adapt_keys(found: Found) -> Mapping[str, Any]:
    """The adapter, as the checkpoint has it."""
    adapter = found.adapter
    if adapter is None:
        return {"adapt.kind": "full"}
    told = found.configuration.get("target_modules")
    told = told or found.configuration.get("actor_rollout_ref.model.target_modules")
    targets = [told] if isinstance(told, str) else told or adapter.get("target_modules")
    dropout = adapter.get("lora_dropout") if found.method == "sft" else None
    return {
        "adapt.kind": "lora",
        "adapt.rank": adapter["r"],
        "adapt.alpha": float(adapter["lora_alpha"]),
        "adapt.rslora": adapter.get("use_rslora") or None,
        "adapt.dora": adapter.get("use_dora") or None,
        "adapt.dropout": dropout or None,
        "adapt.targets": [targets]
        if isinstance(targets, str)
        else sorted(targets or ["all-linear"]),
    }


def run_name(folder: Path) -> str:
    """A run's name from a folder's; ms-swift's versions are called after what holds them."""
    own = folder.resolve()
    own = own.parent if re.fullmatch(r"v\d+-\d+-\d+", own.name) else own
    return re.sub(r"[^A-Za-z0-9._-]+", "-", own.name).lstrip("._-") or "imported"


def model_source(request: Request, found: Found, root: Path) -> str:
    """The model that a run started from. Raises InputError where nobody says it, or it is not
    here."""
    if request.model:
        return with_scheme(request.model, root)
    fix = "--model SOURCE, such as path:DIR or OWNER/NAME"
    if not found.model:
        problem = "does not say which model the run started from"
        raise InputError(problem, file=request.folder, fix=fix)
    if Path(found.model).is_dir():
        return f"path:{Path(found.model).resolve()}"
    if re.fullmatch(r"[\w.-]+/[\w.-]+", found.model):
        return f"hf:{found.model}"
    problem = f"{found.model}, which the run started from, is not here"
    raise InputError(problem, field="--model", fix=fix)


def manifest_of(session: Session, origin: Origin, run: RunDirectory, folder: Path) -> Manifest:
    """The fingerprints that are known; what is not equals no other run's."""
    mark = f"{UNKNOWN} ({run})"
    imported = {
        "tool": session.experiment.stage[origin.stage].trainer or "",
        "package": origin.package,
        "folder": str(folder.resolve()),
        "unknown": list(origin.unknown),
        "differences": dict(origin.differences),
        "unasked": list(origin.unasked),
        "configuration": dict(origin.configuration),
    }
    known = origin.manifest or plain_manifest(session, origin, mark)
    about = about_run(session)
    time = {**known.get("time", {}), "imported": about["time"]["started"]}
    tool = TRAINERS[str(imported["tool"])].package.partition("==")[0]
    packages = {**about["packages"], tool: origin.package.partition("==")[2] or mark}
    kept = {
        "packages": packages,
        "name": session.experiment.name,
        "time": time,
        "machine": {"trained": mark},
    }
    base = {"source": session.experiment.model, "sha256": session.learner.fingerprint}
    base = {**known.get("base_weights", base), "source": base["source"]}
    if base["sha256"] != session.learner.fingerprint:
        problem = f"{session.experiment.model} holds other weights than when {folder} was exported"
        raise InputError(problem, field="--model", fix=f"--model path:{folder / MODEL}")
    return {**about, **known, **kept, "base_weights": base, "evaluation": {}, IMPORTED: imported}


def plain_manifest(session: Session, origin: Origin, mark: str) -> Manifest:
    """Of a run that was made without Assay, or exported before exports held fingerprints."""
    stage = session.experiment.stage[origin.stage]
    table: dict[str, Any] = stage.model_dump(mode="json", exclude_none=True, exclude=WITHOUT_EFFECT)
    table |= {"rendering": {"name": mark}, "data": mark, "micro_tokens": mark}
    table |= {"reward": {UNKNOWN: {"source": mark}}} if "reward" in table else {}
    table |= {"unlike": dict(origin.differences)}
    for path in origin.unknown:
        *parents, last = path.removeprefix(f"stage.{origin.stage}.").split(".")
        if path.startswith("stage.") and last not in (*NOT_TOLD, ""):
            inner = table
            for part in parents:
                inner = inner.setdefault(part, {})
            inner[last] = mark
    seed = {} if origin.seed is not None else {"seed": mark}
    data = {name: {"rows": mark} for name in session.experiment.data}
    return {"data": data, "stages": {origin.stage: table}, **seed}
