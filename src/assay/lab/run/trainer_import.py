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

from assay.data.episode import Episode, row_of, tokens_of
from assay.data.files import with_scheme
from assay.data.json_files import read_jsonl
from assay.data.renderings.rendering import Loss
from assay.data.row import Row
from assay.data.splits import visits
from assay.errors import InputError
from assay.experiment.checkpoint_reference import parse_checkpoint
from assay.experiment.experiment import Experiment
from assay.experiment.read_file import read_experiment
from assay.experiment.stage_tables import GrpoStage, SftStage
from assay.experiment.tables import EvaluateSpec
from assay.experiment.toml_write import experiment_toml
from assay.lab.models.language_encoder import LanguageEncoder
from assay.lab.models.language_learner import language_model, model_folder
from assay.lab.models.learner import question
from assay.lab.monitor.guards import GuardWatch
from assay.lab.monitor.observer import Observer
from assay.lab.run.recorder import Following, RunRecorder, begin
from assay.lab.run.trainer_export import END_OF_ANSWERS, EXPERIMENT, MANIFEST, TRANSLATION
from assay.lab.session.manifest import WITHOUT_EFFECT, about_run
from assay.lab.session.reward_process import ROWS
from assay.lab.session.session import Session
from assay.lab.session.stage_methods import StageInput
from assay.lab.session.tool_stage import stage_alone
from assay.models.folder import read_object
from assay.models.precision import choose_precision
from assay.models.scoring import evaluating
from assay.models.supported import read_config
from assay.models.weight_files import ADAPTER_CONFIG
from assay.rollout.policies.language import LanguagePolicy
from assay.runs.registry import check_index, note_run
from assay.runs.run_directory import (
    IMPORTED,
    Manifest,
    RunDirectory,
    begun,
    change_status,
    drafted_run,
    hold_lab,
    seed_or_damage,
    steps_in,
    write_manifest,
)
from assay.tasks.task import task
from assay.train.grpo import score_all
from assay.train.likelihood import NLL, likelihood_batch
from assay.trainers.outputs.output import Step
from assay.trainers.outputs.plain_folders import FINDERS, FolderContent, Output, find
from assay.trainers.read_back import CANONICAL, changed, likelihood, read_back, with_model
from assay.trainers.register import MODEL, TRAINERS
from assay.trainers.settings import Exported, updates_of_round
from assay.trainers.table import ROLLOUT, table, updates_of

UNKNOWN = "unknown"
LORA = "LORA"
"""What peft calls it."""
VARIANTS = ("use_rslora", "use_dora")
"""Of it, in peft's configuration."""
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
    exported: bool = False
    """Whether Assay made the folder."""
    merges: bool = False
    """Whether its adapters are taken over as whole weights."""


@dataclass(frozen=True, slots=True)
class Imported:
    """What was taken over."""

    origin: Origin
    run: RunDirectory
    steps: int
    checkpoints: tuple[int, ...]
    left_out: tuple[str, ...]
    """Checkpoints that are not whole, or lie inside a round."""


def import_run(root: Path, request: Request, observer: Observer) -> Imported:
    """Take over the run in a folder. Raises InputError for a folder that is none of the tool's, a
    name that is taken and a checkpoint that cannot be opened; nothing is left of the run then."""
    if not request.folder.is_dir():
        raise InputError("no such folder", file=request.folder)
    for option, name in (("--name", request.name), ("--stage", request.stage)):
        if name is not None and not NAME.fullmatch(name):
            fix = "letters, digits, '_', '-' and '.', a letter or a digit first"
            raise InputError(f"{name!r} is no name", field=option, fix=fix)
    task(request.task, root)
    if (request.folder / TRANSLATION).is_file():
        return taken_over(root, request, exported_origin(root, request), observer)
    content = find(request.tool, request.folder, request.configuration, request.log)
    adapter = content.adapter or {}
    kind = adapter.get("peft_type", LORA)
    why = "" if kind == LORA else f"an adapter of type {kind}"
    why = next((f"an adapter with {key}" for key in VARIANTS if adapter.get(key)), why)
    if content.adapter and not why:
        try:
            return taken_over(root, request, plain_origin(root, request, content), observer)
        except InputError as error:  # peft may hold what a LoRA here does not
            why = error.problem
    return taken_over(root, request, plain_origin(root, request, content, why), observer)


def taken_over(root: Path, request: Request, origin: Origin, observer: Observer) -> Imported:
    """See `import_run`."""
    name = origin.experiment.name
    with hold_lab(root):
        if any(origin.seed in (None, seed_or_damage(run.path)) for run in begun(root, name)):
            raise InputError(f"a run named {name!r} exists", field="--name", fix="choose another")
        check_index(root)
    text, seed = experiment_toml(origin.experiment), origin.seed or 0
    with drafted_run(root, name, seed=seed, spec=text, new=True) as (draft, run):
        session = Session(origin.experiment, draft, seed, observer)
        draft.metrics.touch()  # of weights alone there are none
        following = recorded(session, origin)
        saved = tuple(steps_in(draft.checkpoints(origin.stage)))
        if not following.step and not saved:
            raise InputError("its log has no step", file=request.folder)
        origin = replace(origin, **proven_start(session, origin))
        write_manifest(draft, manifest_of(session, origin, run, request.folder))
        now = datetime.now(UTC).isoformat(timespec="seconds")
        change_status(draft.path, status="finished", finished=now)
    note_run(run)
    output, kinds = origin.output, ("checkpoint-*", "global_step_*")
    taken = {part for each in output.checkpoints() for part in (each.folder, each.folder.parent)}
    left = {path.name for kind in kinds for path in output.folder.glob(kind) if path not in taken}
    return Imported(origin, run, following.step, saved, tuple(sorted(left)))


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
        guards=GuardWatch({}, origin.stage, {}, []),
    )
    following = begin(session, recorder, origin.output)
    following.likelihood = origin.likelihood
    following.elsewhere, following.merges = True, origin.merges
    if origin.rows is not None:
        rows = [row_of(record.value) for record in read_jsonl(origin.rows)]
        encoder, task = language_model(session.learner, "assay import").encoder(stage), session.task
        following.contexts = {row.id: encoder.prompt(row, question(task, row)) for row in rows}
    session.observer.stage(origin.stage, stage.method, 0, stage.steps or 0)
    following.take(ended=True)
    return following


LOGGED = 5e-5
"""What rounding to four decimals, the fewest that a tool writes, takes from a loss."""
ERRORS = 4.0
"""Standard errors of a mean by which a loss in bf16 may be off."""


def proven_start(session: Session, origin: Origin) -> Mapping[str, Any]:
    """What the first loss says of the start of an exported stage: the entries of `origin` that it
    changes, none where it is that of the same rows at the start that the export names."""
    stage, place = session.experiment.stage[origin.stage], f"stage.{origin.stage}.start"
    if not origin.exported or place in origin.unknown:
        return {}
    first = next(origin.output.steps(ended=True), None)
    logged = first.metrics.get("loss") if first and first.number == 1 else None
    try:
        if not isinstance(stage, SftStage) or stage.pack_tokens is not None:
            raise InputError("of GRPO and of packed rows it says nothing")
        if logged is None:
            raise InputError("the tool logged none of step 1")
        inputs = session.stage_input(stage)
    except InputError as error:
        what = f"as the export names it; no first loss proves it: {error.problem}"
        return {"differences": {**origin.differences, "start": what}}
    learner = language_model(session.learner, "assay import")
    rows = visits(inputs.rows, inputs.seed, 0, stage.batch, inputs.order)
    encoder, beyond = learner.encoder(stage), END_OF_ANSWERS in origin.differences
    episodes = [taught(inputs, encoder, row, stage.loss_on, beyond) for _, row in rows]
    shelf = replace(learner.shelf(session.run), precision=choose_precision("fp32", "cpu"))
    policy, _ = shelf.policy(stage, learner.base.end_tokens)
    own, give = first_loss(policy, episodes, stage.micro_tokens)
    if abs(own - logged) <= give + LOGGED:
        return {}
    what = (
        f"its first loss is {logged:.4f}, and {own:.4f} on the same rows where the export starts, "
        f"give or take {give + LOGGED:.4f} for rounding"
    )
    differences = {**origin.differences, "start": what}
    return {"unknown": (*origin.unknown, place), "differences": differences}


def first_loss(
    policy: LanguagePolicy, episodes: Sequence[Episode], micro_tokens: int
) -> tuple[float, float]:
    """Mean negative log-likelihood of the trained tokens in fp32, without dropout, and how far it
    may be off in bf16, which tools compute in where they find a GPU: twice what the mean moves here
    and `ERRORS` standard errors of what single tokens move."""
    packed, losses = likelihood_batch(episodes), []
    with evaluating(policy.module):
        for name in ("fp32", "bf16"):
            policy.precision = choose_precision(name, policy.precision.device)
            logps_S, _ = score_all(policy, packed, micro_tokens, entropy=False, atom=NLL.atom)
            losses.append(-logps_S[packed.mask_S].double())
    exact_S, off_S = losses[0], losses[1] - losses[0]
    error = float(off_S.std(correction=0)) / len(off_S) ** 0.5
    return float(exact_S.mean()), 2 * abs(float(off_S.mean())) + ERRORS * error


def taught(
    inputs: StageInput, encoder: LanguageEncoder, row: Row, loss_on: Loss, beyond: bool
) -> Episode:
    """A row as the tool trains it; with `beyond`, what the template writes behind answers too."""
    messages = (*inputs.task.prompt(row), inputs.task.target(row))
    (turn,) = encoder.turns(row, messages, loss_on)
    tokens, mask = turn.actions, turn.loss_mask
    if beyond:
        whole = encoder.renderer_of(row).conversation(messages, row.tools).tokens
        tail = whole[len(tokens_of(turn.context)) + len(tokens) :]
        ends = [place for place in range(1, len(mask)) if mask[place - 1] and not mask[place]]
        tokens, size = (*tokens, *tail), len(tail)
        ends = [*(e for e in ends if tokens[e : e + size] == tail), len(mask)]
        mask = tuple(
            own or any(end <= place < end + size for end in ends)
            for place, own in enumerate((*mask, *[True] * size))
        )
    return Episode(row.id, row.id, (replace(turn, actions=tokens, loss_mask=mask),))


def exported_origin(root: Path, request: Request) -> Origin:
    """Of a folder that `assay export` made. Raises InputError."""
    folder = request.folder
    about, trainer = read_object(folder / TRANSLATION), TRAINERS[request.tool]
    if missing := {"tool", "stage", "settings", "differences"} - about.keys():
        problem = f"lacks {min(missing)!r}"
        raise InputError(problem, file=folder / TRANSLATION, fix="export it again")
    tools = {each.package.partition("==")[0]: name for name, each in TRAINERS.items()}
    tool = tools.get(str(about["tool"]).partition("==")[0])
    if tool is None:
        problem = f"tool is {about['tool']!r}, which is none of {', '.join(tools)}"
        raise InputError(problem, file=folder / TRANSLATION, fix="export it again")
    if tool != request.tool:
        problem = f"was exported for {TRAINERS[tool].title}"
        raise InputError(problem, file=folder, fix=f"--from {tool}")
    if not (folder / "output").is_dir():
        raise InputError("was exported and not trained yet", file=folder, fix="bash run.sh")
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
    unknown = [] if known else [f"data.{each}" for each in whole.data]
    differences = {each["key"]: each["what"] for each in about["differences"]}
    told, trained = None, dict[str, Any]()
    content = FINDERS[tool](folder / "output", None, None)
    if isinstance(content, FolderContent):  # else the tool wrote no configuration of its own
        told, trained = content.start, content.configuration
    others = changed(tool, table(tool, stage.method), trained, about["settings"])
    differences |= {each.key: each.what for each in others}
    if known:
        own = known["stages"][name]
        own["unlike"] = {**own.get("unlike", {}), **{each.key: each.what for each in others}}
    if told:
        unknown.append(f"stage.{name}.start")
        differences["start"] = f"went on from {told}"
    return Origin(
        experiment,
        name,
        known.get("seed", whole.seeds[0]),
        trainer.output(folder / "output", updates_of_round(stage)),
        about["tool"],
        known,
        about["settings"],
        (*unknown, "machine"),
        differences,
        file if (file := folder / ROWS).is_file() else None,
        unasked,
        likelihood({**about["settings"], **trained}, others),
        exported=True,
    )


def measurable(whole: Experiment, stage: str) -> tuple[dict[str, EvaluateSpec], tuple[str, ...]]:
    """What a trained stage can still be measured on, at its own checkpoints and the base; and the
    tables that choose checkpoints or stop a run, which is over."""
    tables, unasked = {}, []
    for name, spec in whole.evaluate.items():
        references = {text: parse_checkpoint(text) for text in spec.checkpoints}
        own = tuple(
            text
            for text, each in references.items()
            if each and each.rule is None and each.stage in (None, stage)
        )
        if spec.role == "report" and own:
            tables[name] = spec.model_copy(update={"checkpoints": own})
        else:
            unasked.append(f"evaluate.{name}")
    unasked += [f"guard.{name}" for name in whole.guard]
    unasked += [f"milestone.{name}" for name in whole.milestone]
    return tables, tuple(unasked)


def plain_origin(root: Path, request: Request, content: FolderContent, why: str = "") -> Origin:
    """Of a folder that was made without Assay; `why` no LoRA holds its adapters, which are merged
    then. Raises InputError; also where the folder does not say what it
    started from."""
    model = model_source(request, content, root)
    config = CANONICAL[request.tool](content.configuration)
    config = with_model(config, read_config(model_folder(model, root)))
    output, name = content.output(updates_of(config)), request.stage or content.method
    steps = list(output.steps(ended=True))
    entries: dict[str, Any] = {"method": content.method, "data": DATA, "start": "base"}
    entries |= {"trainer": request.tool, **adapt_keys(content, why)}
    entries |= {"reward": UNKNOWN, **groups_of(steps, config)} if content.method == "grpo" else {}
    trainer, own = TRAINERS[request.tool], request.folder.resolve()
    # Versions of ms-swift are called after what holds them.
    own = own.parent if re.fullmatch(r"v\d+-\d+-\d+", own.name) else own
    ends = [each.step for each in output.checkpoints()] + [each.number for each in steps]
    words = table(request.tool, content.method)
    told = read_back(words, config, entries, max(ends, default=0))
    seed = config.get("seed")
    experiment = Experiment(
        name=request.name or re.sub(r"[^A-Za-z0-9._-]+", "-", own.name).lstrip("._-") or "imported",
        about=f"Made by {trainer.title} without Assay",
        model=model,
        task=request.task,
        # Tools sample from a part of the softmax by default, which a stage of Assay's may not.
        as_reported=isinstance(told.stage, GrpoStage) and not told.stage.sampling.is_full,
        seeds=(seed if isinstance(seed, int) else 0,),
        data={DATA: {"source": f"path:{UNKNOWN}", "format": "messages"}},  # type: ignore[dict-item]
        stage={name: told.stage},
    )
    keys = [key for key in (*NOT_TOLD, *told.unknown) if key != "reward" or "reward" in entries]
    differences = {each.key: each.what for each in told.differences}
    if why:
        keys.append("adapt.kind")
        differences[ADAPTER_CONFIG] = f"merged by peft into whole weights; kept as no LoRA: {why}"
    late = bool(steps) and steps[0].number > (config.get("logging_steps") or 1)
    chosen = request.model or content.model
    places = {Path(each.removeprefix("path:")).resolve() for each in (chosen, content.model)}
    if content.start != "" or late or len(places) > 1:
        keys.append("start")
    if content.start:
        differences["start"] = f"went on from {content.start}"
    unknown = [f"stage.{name}.{key}" for key in keys] + ["machine"]
    unknown += [] if isinstance(seed, int) else ["seeds"]
    unknown += [] if steps else [f"stage.{name}.steps", "metrics"]
    unknown += [] if content.configuration else [f"everything that {trainer.title} was told"]
    return Origin(
        experiment,
        name,
        seed if isinstance(seed, int) else None,
        output,
        content.package or f"{trainer.title}, version unknown",
        {},
        content.configuration,
        tuple(unknown),
        differences,
        likelihood=likelihood(config, told.differences),
        merges=bool(why),
    )


def groups_of(steps: Sequence[Step], config: Mapping[str, Any]) -> Mapping[str, int]:
    """The groups of a step as its completions show them, where the configuration does not tell."""
    answers = next((each.answers for each in steps if each.answers), ())
    if not answers or {"num_generations", f"{ROLLOUT}.n"} & config.keys():
        return {}
    sizes = [len([*members]) for _, members in groupby(answers, lambda each: each.prompt)]
    return {"group": max(sizes), "prompts": max(1, len(answers) // max(sizes))}


def adapt_keys(content: FolderContent, why: str) -> Mapping[str, Any]:
    """The adapter, as the checkpoint has it; see `plain_origin`."""
    adapter = content.adapter
    if adapter is None or why:
        return {"adapt.kind": "full"}
    places = ("target_modules", "actor_rollout_ref.model.target_modules")
    told = next((keys for place in places if (keys := content.configuration.get(place))), None)
    targets = told or adapter.get("target_modules") or ["all-linear"]
    dropout = adapter.get("lora_dropout") if content.method == "sft" else None
    return {
        "adapt.kind": "lora",
        "adapt.rank": adapter["r"],
        "adapt.alpha": float(adapter["lora_alpha"]),
        "adapt.dropout": dropout or None,
        "adapt.targets": [targets] if isinstance(targets, str) else sorted(targets),
    }


def model_source(request: Request, content: FolderContent, root: Path) -> str:
    """The model that a run started from. Raises InputError where nobody says it, or it is not
    here."""
    if request.model:
        return with_scheme(request.model, root)
    fix = "--model SOURCE, such as path:DIR or OWNER/NAME"
    if not content.model:
        problem = "does not say which model the run started from"
        raise InputError(problem, file=request.folder, fix=fix)
    if Path(content.model).is_dir():
        return f"path:{Path(content.model).resolve()}"
    if re.fullmatch(r"[\w.-]+/[\w.-]+", content.model):
        return f"hf:{content.model}"
    problem = f"{content.model}, which the run started from, is not here"
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
    own = known.get("stages", {}).get(origin.stage, {})
    for path in origin.unknown:
        *parents, last = path.removeprefix(f"stage.{origin.stage}.").split(".")
        if path.startswith("stage.") and last not in (*NOT_TOLD, ""):
            inner = own
            for part in parents:
                inner = inner.setdefault(part, {})
            inner[last] = mark
    about = about_run(session)
    time = {**known.get("time", {}), "imported": about["time"]["started"]}
    tool = TRAINERS[str(imported["tool"])].package.partition("==")[0]
    packages = {**about["packages"], tool: origin.package.partition("==")[2] or mark}
    kept = {"packages": packages, "name": session.experiment.name, "time": time}
    kept |= {"machine": {"trained": mark}}
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
    seed = {} if origin.seed is not None else {"seed": mark}
    data = {name: {"rows": mark} for name in session.experiment.data}
    return {"data": data, "stages": {origin.stage: table}, **seed}
