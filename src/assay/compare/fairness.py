"""Whether runs may be compared at all, before any figure is worked out.

Two kinds of unfairness. Some things are always refused, whatever the reader allows: unfinished
runs, other items, another checker, scores of which some come from a fallback metric, items that
were trained on. Everything else in which two manifests differ is listed, and is a confound unless
it was declared or allowed; `judge.confounds` sorts it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from assay.compare.measured_arm import Measured
from assay.compare.table import Arm
from assay.errors import InputError, nearest
from assay.experiment.read_file import read_experiment
from assay.judge.confounds import Confound, differences, idle
from assay.judge.findings import Finding
from assay.runs.manifest_file import CHECKED, overridden, read_manifest
from assay.runs.measurements import evaluation_records
from assay.runs.records import EvaluationRecord
from assay.runs.run_directory import RunDirectory
from assay.runs.status import read_status

BASE = "base"
TRAINING = ("data", "stages")
"""Parts of a manifest that a model before any training owes nothing to."""
FROM_MANIFEST = ("prompts_sha256", "reward")
"""What the manifest knows of an evaluation and its record does not."""
NOT_COMPARED = ("name", "items", "fewer", "seed", "shared")
"""Fields of a record that are compared elsewhere or change no score."""


class Unfair(InputError):
    """Runs that are never compared, whatever is allowed."""


class NothingToAllow(InputError):
    """A difference was accepted that is none."""


@dataclass(frozen=True)
class Entrant:
    """An arm with all that is compared of it."""

    arm: Arm
    record: EvaluationRecord
    checkpoint: str
    measured: Measured
    manifest: Mapping[str, Any]

    @property
    def run(self) -> RunDirectory:
        """The arm's run."""
        return self.arm.run


def check_finished(run: RunDirectory) -> None:
    """Raise Unfair for a run that is not finished."""
    status = read_status(run.path).status
    if status != "finished":
        fix = f"finish it with 'assay resume {run}'"
        raise Unfair(f"{run} is {status}; only finished runs are compared", fix=fix)


def check_fair(entrants: Sequence[Entrant]) -> list[Finding]:
    """Raise Unfair for what is always refused; returns what could not be looked at, and marks."""
    first = entrants[0]
    for other in entrants[1:]:
        _check_items(first, other)
        _check_checker(first, other)
    _check_fallback(entrants)
    unknown = dict.fromkeys(run for entrant in entrants for run in _check_untrained(entrant))
    findings = [*_overridden(entrants), *_other_renderings(entrants)]
    if unknown:
        what = "whether test items were trained on is not recorded"
        fix = "see 'assay check' of its experiment file"
        findings.append(Finding("note", what, ", ".join(unknown), fix))
    return findings


def _overridden(entrants: Sequence[Entrant]) -> list[Finding]:
    """A finding for each run that was made although its checks ended with errors."""
    what = "a run was made although its checks ended with errors (--despite)"
    fix = "read what was overridden on the page of the run"
    reasons = {str(entrant.run): overridden(entrant.manifest) for entrant in entrants}
    return [
        Finding("warning", what, f"{run}: {reason}", fix)
        for run, reason in reasons.items()
        if reason
    ]


def _other_renderings(entrants: Sequence[Entrant]) -> list[Finding]:
    """A finding that names the checkpoints which were allowed another rendering than they are
    measured in.
    """
    marked = []
    for entrant in entrants:
        stage = read_experiment(entrant.run.spec).stage.get(entrant.checkpoint.partition(".")[0])
        if stage is not None and entrant.record.name in (stage.other_rendering_than or ()):
            marked.append(entrant.measured.name)
    if not marked:
        return []
    what = "measured in another rendering than it was trained in (other_rendering_than)"
    fix = "read the score as that of the model on prompts it was not trained on"
    return [Finding("warning", what, ", ".join(marked), fix)]


def _check_items(first: Entrant, other: Entrant) -> None:
    """Raise Unfair for other items, by their ids and by what they say."""
    one, two = first.record, other.record
    shared = len(set(one.items) & set(two.items))
    if not shared:
        problem = f"{first.run} and {other.run} have no item in common on {one.name}"
        raise Unfair(problem, fix="evaluate both on the same items")
    if set(one.items) != set(two.items):
        problem = (
            f"{other.run} was measured on other items than {first.run}: "
            f"{len(one.items)} and {len(two.items)}, {shared} of them shared"
        )
        raise Unfair(problem, fix="evaluate both on the same items")
    # Options such as worked examples are written into the items and are a difference of their own.
    if one.items_hash != two.items_hash and one.options == two.options:
        problem = (
            f"{other.run} and {first.run} have items of the same ids that say something else, or "
            "stand in another order"
        )
        raise Unfair(problem, fix="evaluate both on the same file of items")


def _check_checker(first: Entrant, other: Entrant) -> None:
    """Raise Unfair for another checker, or another version of it."""
    one, two = first.record.checker, other.record.checker
    if one != two:
        problem = f"checked by {one!r} in {first.run} and by {two!r} in {other.run}"
        raise Unfair(problem, fix="score both with one checker")
    sources = [_evaluation(e).get("reward", {}) for e in (first, other)]
    for name in sources[0].keys() & sources[1].keys():
        versions = [reward[name].get("source_sha256", "")[:8] for reward in sources]
        if versions[0] != versions[1]:
            problem = (
                f"reward {name!r}, which scores {first.record.name}, is another version in "
                f"{first.run} ({versions[0]}) than in {other.run} ({versions[1]})"
            )
            raise Unfair(problem, fix="score both with one version")


def _check_fallback(entrants: Sequence[Entrant]) -> None:
    """Raise Unfair where a fallback metric scored some answers and not others."""
    measured = [entrant.measured for entrant in entrants]
    refuse_mixed({each.name: (each.fallbacks, len(each.judged)) for each in measured})


def refuse_mixed(counts: Mapping[str, tuple[int, int]]) -> None:
    """Raise Unfair unless a fallback metric scored all answers or none; `counts` says of each
    checkpoint how many it scored, and of how many.
    """
    shares = {fallbacks / answers for fallbacks, answers in counts.values() if answers}
    if shares <= {0.0} or shares == {1.0}:
        return
    named = ", ".join(f"{f} of {n} answers of {name}" for name, (f, n) in counts.items())
    problem = f"mixed metrics: a fallback scored {named}"
    raise Unfair(problem, fix="score all answers with one metric")


def _check_untrained(entrant: Entrant) -> list[str]:
    """Raise Unfair where a checkpoint was trained on items; returns the runs nobody looked at."""
    trained = [] if entrant.checkpoint == BASE else [(entrant.run, entrant.record)]
    unknown = []
    for run, record in [*trained, *_ancestors(entrant)]:
        if record is None or record.shared is None:
            unknown.append(str(run))
        else:
            refuse_trained(entrant.measured.name, run, record)
    return unknown


def refuse_trained(name: str, run: RunDirectory, record: EvaluationRecord) -> None:
    """Raise Unfair where the run that made the checkpoint `name` trained on the record's items."""
    for data, rows in (record.shared or {}).items():
        if rows:
            problem = (
                f"{name} was trained on test items: {rows} rows of data.{data} in {run} ask what "
                f"items of {record.name} ask"
            )
            raise Unfair(problem, fix="train without them; no comparison mends this")


def _ancestors(entrant: Entrant) -> list[tuple[RunDirectory, EvaluationRecord | None]]:
    """The runs whose checkpoints the arm's model descends from, with their record of the items."""
    found: list[tuple[RunDirectory, EvaluationRecord | None]] = []
    for checkpoint in _lineage(entrant.run):
        run = _run_of(entrant.run, checkpoint)
        records = evaluation_records(run) if run.spec.exists() else []
        same = [r for r in records if r.items_hash == entrant.record.items_hash]
        found.append((run, same[0] if same else None))
    return found


def trained_between(
    run: RunDirectory, checkpoint: str, other: RunDirectory, later: str
) -> tuple[str, ...]:
    """The parts of a manifest that the training between two checkpoints explains; none where
    neither run started from the other's checkpoint.
    """
    start = _descends(run, other, later) or _descends(other, run, checkpoint)
    return (*TRAINING, "base_weights", "seed") if start else ()


def _descends(run: RunDirectory, other: RunDirectory, checkpoint: str) -> bool:
    """Whether what a run trained started from this checkpoint of another, at once or by others."""
    if checkpoint == BASE:
        weights = _weights(other)
        lineage = (_run_of(run, name) for name in _lineage(run))
        return weights is not None and weights in (_weights(each) for each in (run, *lineage))
    stage, _, step = checkpoint.partition(".step-")
    folder = other.checkpoint(stage, int(step)).relative_to(other.root)
    return folder.as_posix() in _lineage(run)


def _lineage(run: RunDirectory) -> Iterator[str]:
    """The checkpoints that a run's model descends from, the nearest first."""
    while (checkpoint := read_manifest(run).get("base_weights", {}).get("checkpoint")) is not None:
        yield checkpoint
        run = _run_of(run, checkpoint)


def _run_of(run: RunDirectory, checkpoint: str) -> RunDirectory:
    _, name, id_, *_ = checkpoint.split("/")
    return RunDirectory(run.root, name, id_)


def _weights(run: RunDirectory) -> str | None:
    return read_manifest(run).get("base_weights", {}).get("sha256")


def find_differences(
    control: Entrant, other: Entrant, vary: Sequence[str] | None, allow: Sequence[str]
) -> list[Confound]:
    """Everything in which two runs differ, as far as it bears on what is compared.

    Of the evaluations that is the compared one, under the control's name, and those that choose
    checkpoints. Where one side is a model before training, or what the other's training started
    from, the training is what the comparison is about, so that its settings count as declared;
    where both are untrained, they bear on nothing.
    """
    if vary is None:
        vary = declared(control, other)
    untrained = [entrant.checkpoint == BASE for entrant in (control, other)]
    left, right = (_bearing(e, control.record.name, all(untrained)) for e in (control, other))
    between = trained_between(control.run, control.checkpoint, other.run, other.checkpoint)
    if any(untrained) or between:
        selecting = [f"evaluation.{n}" for n in (left | right)["evaluation"] if n != _name(control)]
        vary = (*vary, *TRAINING, *selecting, *between)
    # A mean over more repeats is a mean of the same: it is only known better.
    repeats = f"evaluation.{control.record.name}.repeats"
    return differences(left, right, vary, allow, [repeats])


def declared(control: Entrant, other: Entrant) -> tuple[str, ...]:
    """What the experiment files of two runs say may differ between them."""
    if control.run == other.run:
        return ()
    return (*read_experiment(control.run.spec).vary, *read_experiment(other.run.spec).vary)


def idle_factors(
    control: Entrant, other: Entrant, vary: Sequence[str] | None, found: Sequence[Confound]
) -> list[Finding]:
    """A finding for every factor that was to differ and does not: then what is compared?"""
    if BASE in (control.checkpoint, other.checkpoint):
        return []
    one, two = control.measured.name, other.measured.name
    fix = "was the setting applied, and are these the runs that were meant?"
    what = "the declared factor is the same in both runs"
    wanted = declared(control, other) if vary is None else vary
    return [
        Finding("warning", what, f"{path}: {one} and {two}", fix) for path in idle(wanted, found)
    ]


def check_allowed(allow: Sequence[str], found: Sequence[Confound]) -> None:
    """Raise NothingToAllow for an accepted path in which no runs differ."""
    for path in idle(allow, found):
        problem = f"the runs do not differ in {path!r}"
        known = sorted({difference.path for difference in found})
        fix = nearest(path, known) if known else "they differ in nothing"
        raise NothingToAllow(problem, field="--allow", fix=fix)


def _name(entrant: Entrant) -> str:
    return entrant.record.name


def _bearing(entrant: Entrant, name: str, untrained: bool) -> dict[str, Any]:
    """The parts of a run's manifest that bear on the compared scores."""
    manifest = {k: v for k, v in entrant.manifest.items() if k != CHECKED}
    recorded = manifest.get("evaluation", {})
    choosing = {n: e for n, e in recorded.items() if e.get("role") == "select"}
    manifest["evaluation"] = {**choosing, name: _evaluation(entrant)}
    if untrained:
        manifest = {k: v for k, v in manifest.items() if k not in TRAINING}
        manifest["evaluation"] = {name: _evaluation(entrant)}
    return manifest


def _evaluation(entrant: Entrant) -> dict[str, Any]:
    """What the compared evaluation measures, from its record and the manifest."""
    record = entrant.record
    known = entrant.manifest.get("evaluation", {}).get(record.name, {})
    fields = {key: value for key, value in asdict(record).items() if key not in NOT_COMPARED}
    return {**fields, **{key: known[key] for key in FROM_MANIFEST if key in known}}
