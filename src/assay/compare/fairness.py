"""Decides whether arms may be compared, before any figure is computed.

Some differences are always refused: unfinished runs, other items, another checker, scores partly
from a fallback metric, items that were trained on. Every other difference is listed, and is a
confound unless it was declared, allowed or explained by one that was (`judge.confounds`).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from assay.compare.arm import Arm, Provenance, one_metric, scored_apart
from assay.data.results.foreign_result import Result
from assay.errors import Finding, InputError, finding
from assay.judge.confounds import ABSENT, Confound, differences, dotted, idle, part_of
from assay.runs.history import evaluation_records
from assay.runs.records import EvaluationRecord
from assay.runs.run_directory import (
    CHECKED,
    RunDirectory,
    overridden,
    read_manifest,
    read_status,
    saw_answers,
)

BASE = "base"
TRAINING = ("data", "helpers", "stages")
"""Parts of a manifest that do not affect a model before training."""
MODEL = ("base_weights",)
"""Settings in another tool's log that name the model under test."""
MEASURED = {*("latency", "time", "duration", "seconds", "ms", "cost", "price", "energy"), "memory"}
MEASURED |= {*("loss", "nll", "perplexity", "ppl", "logprob", "logprobs", "logps", "kl")}
"""Words of metrics that measure how an answer was made, not what it says."""
TEMPLATE, PROMPTS = "chat_template_sha", "prompts_sha256"
"""Of another tool's log: the fingerprints of the model's template and of the prompts of a task."""
FROM_MANIFEST = ("prompts_sha256", "reward", "judges")
"""Fields of an evaluation that the manifest has and its record does not."""
NOT_COMPARED = ("name", "items", "fewer", "seed", "shared")
"""Fields of a record that are compared elsewhere or change no score."""
_COUNTED = ("train", "dev", "dropped", "total", "groups", "sources")
ROWS = ("contents_sha256", "prompts_sha256", *_COUNTED)
"""Keys of a manifest on the rows of a data set."""


@dataclass(frozen=True, slots=True)
class Terms:
    """The differences that two arms may have, beside those that their experiment files declare."""

    allow: tuple[str, ...] = ()
    """Undeclared differences that the reader accepts."""
    axes: tuple[str, ...] = ()
    """Keys of the experiment in which the cells of a matrix differ; empty outside of a matrix."""


DECLARED = Terms()
"""Nothing but what the experiment files declare."""


def contradictions(control: Arm, other: Arm) -> tuple[list[Confound], list[Finding]]:
    """What cannot be true of two files of other tools, as confounds that nothing allows and as
    findings: a summary without the rows that make it, equal answers with other scores."""
    files = [(arm.name, arm.result) for arm in (control, other) if arm.result is not None]
    wrong = {each.field: each for _, result in files for each in result.contradictions}
    confounds = [Confound(c.field, c.stated, c.counted, "confound") for c in wrong.values()]
    findings = [each for name, result in files for each in remarks(result, name)]
    apart = scored_apart(control, other)
    if not apart or {*re.split(r"[\W_]+", _metric(control).lower())} & MEASURED:
        return confounds, findings
    item, scores = next(iter(apart.items()))
    certain = all(result.reads_answers for _, result in files)
    if certain:
        confounds.append(Confound(f"scores.{item}", *scores, "confound"))
    values = {"one": control.name, "other": other.name, "count": len(apart), "item": item}
    values |= {"first": f"{scores[0]:g}", "second": f"{scores[1]:g}"}
    findings.append(finding("scored_apart", "error" if certain else "warning", **values))
    return confounds, findings


def remarks(result: Result, name: str) -> list[Finding]:
    """What a file of another tool says wrongly of itself, and what was found in reading it."""
    noticed = [replace(each, values={**each.values, "name": name}) for each in result.remarks]
    if not result.contradictions:
        return noticed
    first, *others = result.contradictions
    shown = {k: f"{v:.6g}" if isinstance(v, float) else str(v) for k, v in asdict(first).items()}
    values = {"name": name, **shown, "count": 1 + len(others)}
    return [finding("contradicts_itself", "error", **values), *noticed]


def check_finished(run: RunDirectory) -> None:
    """Raise InputError for a run that is not finished."""
    status = read_status(run.path).status
    if status != "finished":
        fix = f"finish it with 'assay resume {run}'"
        raise InputError(f"{run} is {status}; only finished runs are compared", fix=fix)


def check_fair(arms: Sequence[Arm]) -> list[Finding]:
    """Raise InputError for what is always refused; returns what could not be checked, and what
    people should know of the arms.

    The first arm is the control. Seeds of an arm are given as arms of their own.
    """
    own = [arm for arm in arms if arm.provenance is not None]
    foreign = len(own) < len(arms)
    for other in arms[1:]:
        _check_measure(arms[0], other)
        if arms[0].result is not None or other.result is not None:
            _check_same_task(arms[0], other)
    for other in own[1:]:
        _check_items(own[0].recorded, other.recorded)
        _check_reward(own[0].recorded, other.recorded)
    check_one_metric({arm.name: arm for arm in own})
    untested = dict.fromkeys(run for arm in own for run in _check_untrained(arm))
    manifests = {str(arm.recorded.run): arm.recorded.manifest for arm in own}
    confounds = [
        finding("despite", "warning", run=run, reason=reason)
        for run, manifest in manifests.items()
        if (reason := overridden(manifest))
    ]
    named = {
        "saw_answers": [run for run, manifest in manifests.items() if saw_answers(manifest)],
        "other_rendering": [arm.name for arm in own if _rendered_otherwise(arm.recorded)],
        "training_on_tests_unknown": untested,
        "settings_unknown": [
            arm.name
            for arm in arms
            if arm.format != arms[0].format or (arm.result and not arm.result.configured)
        ],
        "checker_unknown": [arm.name for arm in arms if foreign and not arm.checker],
        "no_scores_in_file": [
            f"{arm.name}: {', '.join(arm.result.left_out)}"
            for arm in arms
            if arm.result is not None and arm.result.left_out
        ],
    }
    notes = ("training_on_tests_unknown", "no_scores_in_file")
    return confounds + [
        finding(code, "note" if code in notes else "warning", names=", ".join(names))
        for code, names in named.items()
        if names
    ]


def _rendered_otherwise(origin: Provenance) -> bool:
    """Whether the experiment of a checkpoint allows another rendering in the evaluation than in
    training."""
    stage = origin.history.experiment.stage.get(origin.checkpoint.partition(".")[0])
    return stage is not None and origin.record.name in (stage.other_rendering_than or ())


def _check_measure(control: Arm, other: Arm) -> None:
    """Raise InputError for another metric or checker than the control's."""
    measures = {
        "metric": map(_metric, (control, other)),
        "checker": (control.checker, other.checker),
    }
    for what, (ours, theirs) in measures.items():
        if ours and theirs and ours != theirs:
            problem = f"{control.name} has the {what} {ours!r}, {other.name} {theirs!r}"
            raise InputError(problem, fix=f"score both with one {what}")


def _check_same_task(control: Arm, other: Arm) -> None:
    """Raise InputError for another benchmark or other items than the control's."""
    if control.format == other.format and control.benchmark != other.benchmark:
        problem = f"{control.name} is on {control.benchmark}, {other.name} on {other.benchmark}"
        raise InputError(problem, fix="compare one benchmark at a time")
    _check_items_listed(control.name, control.scores.item_ids, other.name, other.scores.item_ids)
    if control.result is None or other.result is None or control.format != other.format:
        return
    ours, theirs = control.result.questions, other.result.questions
    changed = sorted(item for item in ours.keys() & theirs.keys() if ours[item] != theirs[item])
    if changed:
        problem = f"{len(changed)} items ask something else in {other.name}, {changed[0]!r} for one"
        raise InputError(problem, fix="evaluate both on the same questions")


def _metric(arm: Arm) -> str:
    return "" if arm.result is None else arm.result.metric


def _check_items_listed(
    control: str, ours: Sequence[str], other: str, theirs: Sequence[str]
) -> None:
    """Raise InputError unless both were asked the same items."""
    if set(ours) != set(theirs):
        problem = (
            f"{other} was measured on other items than {control}: "
            f"{len(ours)} and {len(theirs)}, {len(set(ours) & set(theirs))} of them shared"
        )
        raise InputError(problem, fix="evaluate both on the same items")


def _check_items(one: Provenance, two: Provenance) -> None:
    """Raise InputError for other items of two runs, by their ids and by what they say."""
    _check_items_listed(str(one.run), one.record.items, str(two.run), two.record.items)
    # Options such as worked examples are written into the items and are a difference of their own.
    same_options = one.record.options == two.record.options
    if one.record.items_hash != two.record.items_hash and same_options:
        problem = (
            f"{two.run} and {one.run} have items of the same ids that say something else, or "
            "stand in another order"
        )
        raise InputError(problem, fix="evaluate both on the same file of items")


def _check_reward(one: Provenance, two: Provenance) -> None:
    """Raise InputError for another version of the reward that scores two runs."""
    rewards = [_measured_with(each).get("reward", {}) for each in (one, two)]
    for name in rewards[0].keys() & rewards[1].keys():
        tables = [{"reward": reward[name]} for reward in rewards]
        keys = ("reward.version", "reward.source_sha256")
        changes = [d for d in differences(tables[0], tables[1]) if d.path in keys]
        if changes:
            versions = [str(value)[:8] for value in (changes[0].control, changes[0].other)]
            problem = (
                f"reward {name!r}, which scores {one.record.name}, is another version in "
                f"{one.run} ({versions[0]}) than in {two.run} ({versions[1]})"
            )
            raise InputError(problem, fix="score both with one version")


def check_one_metric(arms: Mapping[str, Arm]) -> None:
    """Raise InputError unless a fallback metric scored all answers of these arms or none."""
    if not one_metric(arms.values()):
        shares = (f"{a.fallbacks} of {len(a.judged)} answers of {n}" for n, a in arms.items())
        problem = f"mixed metrics: a fallback scored {', '.join(shares)}"
        raise InputError(problem, fix="score all answers with one metric")


def _check_untrained(arm: Arm) -> list[str]:
    """Refuse a checkpoint whose run, or a run that its model descends from, was trained on items;
    returns the runs without a record of it."""
    origin = arm.recorded
    check_own_training(arm)
    trained = {origin.run: origin.record.shared} if origin.checkpoint != BASE else {}
    for run in dict.fromkeys(parent for _, parent in _lineage(origin.run)):
        records = evaluation_records(run) if run.spec.exists() else []
        same = [r for r in records if r.items_hash == origin.record.items_hash]
        trained[run] = same[0].shared if same else None
        if same:
            _check_not_trained_on(arm.name, run, same[0])
    return [str(run) for run, shared in trained.items() if shared is None]


def check_own_training(arm: Arm) -> None:
    """Raise InputError where the run of an arm was trained on the items that the arm answered."""
    origin = arm.recorded
    if origin.checkpoint != BASE:
        _check_not_trained_on(arm.name, origin.run, origin.record)


def _check_not_trained_on(name: str, run: RunDirectory, record: EvaluationRecord) -> None:
    for data, rows in (record.shared or {}).items():
        if rows:
            problem = (
                f"{name} was trained on test items: {rows} rows of data.{data} in {run} ask what "
                f"items of {record.name} ask"
            )
            raise InputError(problem, fix="train without them; no comparison can correct this")


def _descends(run: RunDirectory, other: Provenance) -> bool:
    """Whether the training of a run started from another's checkpoint, directly or through runs
    between them."""
    if other.checkpoint == BASE:
        weights = other.manifest.get("base_weights", {}).get("sha256")
        lineage = (run, *(parent for _, parent in _lineage(run)))
        known = (read_manifest(each).get("base_weights", {}).get("sha256") for each in lineage)
        return weights is not None and weights in known
    stage, _, step = other.checkpoint.partition(".step-")
    folder = other.run.checkpoint(stage, int(step)).relative_to(other.run.root)
    return folder.as_posix() in dict(_lineage(run))


def _lineage(run: RunDirectory) -> Iterator[tuple[str, RunDirectory]]:
    """The checkpoints of other runs that a run's model and its stages descend from, each with its
    run and before those that it descends from itself."""
    manifest = read_manifest(run)
    starts = [stage.get("from", {}) for stage in manifest.get("stages", {}).values()]
    for each in (manifest.get("base_weights", {}), *starts):
        if (checkpoint := each.get("checkpoint")) is not None:
            _, name, id_, *_ = checkpoint.split("/")
            parent = RunDirectory(run.root, name, id_)
            yield checkpoint, parent
            yield from _lineage(parent)


def find_differences(control: Arm, other: Arm, terms: Terms) -> list[Confound]:
    """Everything in which two arms differ, as far as it bears on the compared scores.

    Of two runs, the manifests and records are compared; of two files, the settings that both carry,
    of which the model is under test. Where one side is a model before training, or what the other's
    training started from, the training is under test; where both are untrained, it bears on
    nothing.
    """
    one, two = control.provenance, other.provenance
    if one is not None and two is not None:
        return _run_differences(one, two, terms)
    left, right = _carried(control, other)
    # Apart from the rest, because other words of a prompt do not follow from another model.
    ours, theirs = ({part: side.pop(part, {}) for part in MODEL} for side in (left, right))
    named = differences(ours, theirs, tested=MODEL)
    notes, templates = _of_prompts(left, right)
    notes.append("evaluation.repeats")
    return [*named, *differences(left, right, (), terms.allow, notes, templates if named else ())]


def _of_prompts(left: Mapping[str, Any], right: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Settings of two logs that changed no item: how prompts are written where their words are the
    same, seeds where there are no worked examples either, a type that both were loaded in. Then the
    paths of chat templates where both sides use one: each model has its own."""
    sides = left["evaluation"], right["evaluation"]
    notes, templates, seeds = list[str](), list[str](), True
    for task in dict.fromkeys([*sides[0], *sides[1]]):
        if task == "repeats":
            continue
        one, two = (side.get(task, {}) for side in sides)
        if one.get(PROMPTS, "") == two.get(PROMPTS, ABSENT):
            notes.append(f"evaluation.{task}.rendering")
        elif one.get("examples") or two.get("examples"):
            seeds = False
        if all((each.get("rendering") or {}).get(TEMPLATE) for each in (one, two)):
            templates.append(f"evaluation.{task}.rendering.{TEMPLATE}")
    types = [side.get("machine", {}).get("dtype") for side in (left, right)]
    notes += ["random_seeds"] * seeds
    notes += ["model_args.dtype"] * (types[0] is not None and types[0] == types[1])
    return notes, templates


def _run_differences(one: Provenance, two: Provenance, terms: Terms) -> list[Confound]:
    tested: list[str] = []
    untrained = [origin.checkpoint == BASE for origin in (one, two)]
    # In a matrix the evaluation may itself be an axis, so that it stands without a name.
    name = "" if terms.axes else one.record.name
    left, right = (_described(origin, name, all(untrained)) for origin in (one, two))
    between = _descends(one.run, two) or _descends(two.run, one)
    if any(untrained) or between:
        # So do the evaluations that choose checkpoints: they belong to the training.
        others = [n for n in (left | right)["evaluation"] if n != name] if name else []
        tested = [*TRAINING, *(f"evaluation.{n}" for n in others)]
        tested += ["base_weights", "seed"] * between
    # More repeats estimate the same mean, only more precisely.
    repeats = f"evaluation.{name}.repeats".replace("..", ".")
    confounds = differences(
        left, right, (*terms.axes, *_declared(one, two)), terms.allow, [repeats], tested
    )
    follow = [pattern for key in terms.axes for pattern in consequences_of(key)]
    return [
        replace(each, kind="follows")
        if each.kind == "confound"
        and any(fnmatchcase(each.path, p) or fnmatchcase(each.path, f"{p}.*") for p in follow)
        else each
        for each in confounds
    ]


def _declared(one: Provenance, two: Provenance) -> tuple[str, ...]:
    """The differences that the experiment files of two runs declare."""
    if one.run == two.run:
        return ()
    return (*one.history.experiment.vary, *two.history.experiment.vary)


def _described(origin: Provenance, name: str, untrained: bool) -> dict[str, Any]:
    """The parts of a manifest that bear on the compared scores.

    Of the evaluations that is the compared one, as `name`, and those that choose checkpoints; with
    an empty name, the compared one alone.
    """
    manifest = {k: v for k, v in origin.manifest.items() if k != CHECKED}
    recorded = manifest.pop("evaluation", {})
    measured = _measured_with(origin)
    if untrained:
        manifest = {k: v for k, v in manifest.items() if k not in TRAINING}
    if not name:
        return {**manifest, "evaluation": {k: v for k, v in measured.items() if k != "role"}}
    choosing = {n: e for n, e in recorded.items() if e.get("role") == "select" and not untrained}
    return {**manifest, "evaluation": {**choosing, name: measured}}


def _measured_with(origin: Provenance) -> dict[str, Any]:
    """The description of the compared evaluation, from its record and the manifest."""
    known = origin.manifest.get("evaluation", {}).get(origin.record.name, {})
    fields = {k: v for k, v in asdict(origin.record).items() if k not in NOT_COMPARED}
    return {**fields, **{key: known[key] for key in FROM_MANIFEST if key in known}}


def consequences_of(key: str) -> list[str]:
    """Patterns of the manifest paths that a key of the experiment changes besides itself."""
    parts = key.split(".")
    if parts[0] == "data" and len(parts) > 1:
        rows = (*ROWS, "file_sha256", "run") if parts[2:] in ([], ["source"]) else ROWS
        return [f"data.{parts[1]}.{row}" for row in rows]
    if parts in (["model"], ["model", "policy"]):
        # Another tokenizer renders the same rows otherwise.
        prompts = ["data.*.prompts_sha256", "evaluation.prompts_sha256"]
        return [*prompts, "stages.*.rendering", "evaluation.rendering"]
    if parts[0] == "stage" and parts[-1] == "rendering":
        return [f"stages.{parts[1]}.rendering", "data.*.prompts_sha256"]
    prompts = ["evaluation.items_hash", "evaluation.prompts_sha256"]
    if parts[0] == "evaluate":
        # The record's own table has no name in the middle; prompts with examples are other items.
        return [".".join(["evaluation", *parts[2:]]), *prompts]
    return prompts if parts[0] == "evaluation" else []


def _carried(control: Arm, other: Arm) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings that both logs have; tools that name them differently share none."""
    left: dict[str, Any] = {"evaluation": {"repeats": control.scores.repeats}}
    right: dict[str, Any] = {"evaluation": {"repeats": other.scores.repeats}}
    if control.result is not None and other.result is not None and control.format == other.format:
        ours, theirs = control.result.settings, other.result.settings
        for part in ours.keys() & theirs.keys():
            left[part] = {**left.get(part, {}), **ours[part]}
            right[part] = {**right.get(part, {}), **theirs[part]}
    return left, right


def compared_parts(arms: Sequence[Arm]) -> frozenset[str] | None:
    """The parts of which something is known of every arm; None where all are runs of the lab."""
    if all(arm.provenance is not None for arm in arms):
        return None
    known = [map(dotted, _carried(arms[0], other)) for other in arms[1:]]
    paths = set.intersection(*({*one} & {*two} for one, two in known))
    checked = {"checker"} if all(arm.checker for arm in arms) else set()
    return frozenset({part_of(path) for path in paths} | checked)


def idle_factors(control: Arm, other: Arm, confounds: Sequence[Confound]) -> list[Finding]:
    """A finding for every declared factor that does not differ, since nothing is compared then."""
    one, two = control.provenance, other.provenance
    if one is None or two is None or BASE in (one.checkpoint, two.checkpoint):
        return []
    return [
        finding("factor_the_same", "warning", path=path, one=control.name, other=other.name)
        for path in idle(_declared(one, two), confounds)
    ]


def idle_allowances(allow: Sequence[str], confounds: Sequence[Confound]) -> list[Finding]:
    """A remark for each accepted path in which no arms differ: as the repeated command of a result
    whose runs are of one version now, or a word that was misspelt."""
    known = ", ".join(sorted({difference.path for difference in confounds})) or "–"
    return [
        finding("allowed_the_same", "note", path=p, known=known) for p in idle(allow, confounds)
    ]
