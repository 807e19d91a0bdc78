"""The functions of the library: run, resume, check, evaluate, compare, open a run.

Each does what the verb of the command line of that name does, which calls it, and returns a typed
result. Errors are `errors.AssayError`; nothing is printed but progress, and no process is ended.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from assay.compare.arm import Provenance
from assay.data.files import canonical_json, remove_leftovers, sha256_text
from assay.data.json_files import read_jsonl
from assay.errors import InputError, RunFailure
from assay.experiment.read_file import ExperimentSource, lines_named, read_experiment
from assay.experiment.toml_write import inline
from assay.lab.monitor.observer import Callback, Called, Observer, Several, Silent
from assay.library.live_values import Rows, frame, label, stored
from assay.library.typed_results import EvaluationResult, Run, RunComparison
from assay.pages.live_display import PlainProgress
from assay.pages.run_page import Reporting, lacks_page, write_report
from assay.runs.history import History, find_record
from assay.runs.run_directory import hold_run, lab_root, read_status
from assay.runs.run_names import experiment_of, find_run, parse_run_name

if TYPE_CHECKING:  # checking loads torch, which comparing and reading do without
    from pandas import DataFrame

    from assay.lab.check.all_checks import CheckResult

Overrides = Sequence[str] | Mapping[str, Any]
"""`["stage.rl.steps=20"]` as after `--set`, or `{"stage.rl.steps": 20}`."""
Root = str | Path | None
"""The lab's root; None: ASSAY_LAB, else the working directory."""
Target = str | Run
"""A run by NAME, NAME/ID or NAME#SEED, or one that was opened."""


def run(spec: ExperimentSource | Run, rows: Rows = None, reward: Any = None, **options: Any) -> Run:
    """Run an experiment of one seed; or, with `rows`, train the model `spec` on them by GRPO.

    `reward` is a function or a list of them. `options` are those of `run_seeds`; with rows also
    `task`, a task's class or a generator function of several turns; `test`, rows that are answered
    before and after; `name`, else the reward's; and keys of the stage such as `steps`. Raises
    InputError for several seeds, which are several runs.
    """
    of_run = signature(run_seeds).parameters
    own = {key: options.pop(key) for key in [*options] if key not in of_run}
    if rows is not None:
        spec = grpo_values(model_of(spec), rows, reward, **own)
    elif own or reward is not None or isinstance(spec, Run):
        fix = "hand in rows as well, or write it into the experiment"
        field = next(iter(own), "reward")
        raise InputError("is for a model that is trained on rows", field=field, fix=fix)
    values: ExperimentSource = stored(spec, root_of(options.get("root")))
    seeds = read_experiment(values, settings(options.get("overrides", ()))).seeds
    if len(seeds) > 1:
        fix = "call assay.run_seeds, which returns a run for each, or override seeds"
        raise InputError(f"names {len(seeds)}, and each is a run", field="seeds", fix=fix)
    (made,) = run_seeds(values, **options)
    return made


def grpo_values(
    model: str,
    rows: Rows,
    reward: Any,
    *,
    task: Any = "chat",
    test: Rows = None,
    name: str | None = None,
    **stage: Any,
) -> dict[str, Any]:
    """The experiment of one GRPO stage on rows, measured on others where there are some."""
    first = reward[0] if isinstance(reward, list | tuple) and reward else reward
    length = {} if "steps" in stage or "epochs" in stage else {"epochs": 1}
    trained = {"method": "grpo", "data": "train", "prompts": 8, **length, **stage}
    values = {
        "name": name or label(first or "grpo"),
        "model": model,
        "task": task,
        "data": {"train": {"source": rows}},
        "stage": {"grpo": trained | ({"reward": reward} if reward is not None else {})},
    }
    if test is None:
        return values
    values["data"]["test"] = {"source": test}
    most = stage.get("sampling", {}).get("max_tokens", 256)
    measured = {"data": "test", "reward": reward, "role": "report"}
    measured |= {"checkpoints": ["base", "grpo.last"], "sampling": {"max_tokens": most}}
    return {**values, "evaluate": {"test": measured}}


def model_of(target: Any) -> str:
    """The source of a model: a run's last checkpoint, `NAME@CHECKPOINT` of one, or as it is."""
    if isinstance(target, Run):
        stage = [*target.experiment.stage][-1]
        return f"run:{target}@{stage}.last"
    text = str(target)
    return f"run:{text}" if "@" in text and ":" not in text else text


def run_seeds(
    spec: ExperimentSource,
    *,
    overrides: Overrides = (),
    root: Root = None,
    new: bool = False,
    or_resume: bool = False,
    despite: str | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool = True,
    lang: str = "en",
) -> tuple[Run, ...]:
    """Check an experiment, train it, measure it and write its page, once per seed.

    `spec` is a file, the values of one, or an Experiment. A name that has runs is refused, unless
    `new` starts another or `or_resume` resumes an unfinished one and leaves a finished one alone.
    `despite` is the reason to go on although checks end with errors. Raises InputError before
    anything is computed, RunFailure for a run that stopped: what it recorded is kept.
    """
    from assay.lab.run.resume import launch_or_resume
    from assay.lab.run.runner import start
    from assay.lab.session.validate import read_whole

    if new and or_resume:
        raise InputError("new and or_resume exclude each other", fix="choose one")
    lab, changes = root_of(root), settings(overrides)
    spec = stored(spec, lab)
    with observing(callbacks, progress, lang) as observer:
        experiment = read_experiment(spec, changes) if or_resume else read_whole(spec, changes, lab)
        with lines_named(experiment.origin):
            if or_resume:
                done = launch_or_resume(experiment, root=lab, observer=observer, despite=despite)
                made = [Run(each.run, lang, each.did) for each in done]
            else:
                runs = start(experiment, root=lab, new=new, observer=observer, despite=despite)
                made = [Run(run, lang, "started") for run in runs]
    for each in made:
        if each.did in ("left alone", "measured"):
            write_report(each.directory, lang)
    return tuple(made)


def resume(
    target: Target,
    *,
    root: Root = None,
    past_guard: bool = False,
    despite: str | None = None,
    ranks: int | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool = True,
    lang: str = "en",
) -> Run:
    """Continue a run from its last checkpoint.

    `ranks` processes go on, else as many as before. Of a finished run that lacks its page, the
    page is written; reporting evaluations that it lacks, such as those of a run that was taken
    over, are measured. Raises InputError for one that has all, and what `run_seeds` raises.
    """
    from assay.lab.run.resume import lacking, measure_added
    from assay.lab.run.resume import resume as resume_run

    run, did = open_run(target, root=root, lang=lang).directory, "resumed"
    finished = read_status(run.path).status == "finished" and not past_guard
    with observing(callbacks, progress, lang) as observer:
        if finished and (lacks := lacking(run, experiment_of(run))):
            measure_added(run, lacks, observer)
            did = "measured"
        elif finished and lacks_page(run):
            with hold_run(run.path):
                remove_leftovers(run.path)
            did = "page written"
        else:
            options = {"past_guard": past_guard, "despite": despite, "ranks": ranks}
            resume_run(run, observer=observer, **options)
    if did != "resumed":
        write_report(run, lang)
    return Run(run, lang, did)


def check(
    spec: ExperimentSource,
    *,
    overrides: Overrides = (),
    root: Root = None,
    progress: bool = True,
    probe: int = 0,
) -> "CheckResult":
    """Find the problems of an experiment that can be known before training; `probe` prompts of each
    stage are answered by the checkpoint that it starts from.

    Raises InputError where the experiment itself cannot be read; every other problem is a finding.
    """
    from assay.lab.check.all_checks import check_experiment
    from assay.lab.session.validate import read_whole

    lab = root_of(root)
    experiment = read_whole(stored(spec, lab), settings(overrides), lab)
    with shown(progress) as observer:
        return check_experiment(experiment, root=lab, observer=observer, probe=probe)


def evaluate(
    target: Target,
    benchmark: str | Rows,
    reward: Any = None,
    *,
    root: Root = None,
    task: Any = None,
    agent: Any = None,
    repeats: int = 1,
    temperature: float = 0.0,
    max_tokens: int = 256,
    take: int | None = None,
    rendering: str = "auto",
    options: Mapping[str, Any] | None = None,
    on: str | None = None,
    despite: str | None = None,
    progress: bool = True,
) -> EvaluationResult:
    """Measure `NAME@CHECKPOINT` of a run, or a model such as `hf:ID`, on a benchmark, or on rows
    with a reward, a source such as `path:FILE` included. An `agent` (docs/agents.md) plays rows and
    brings their reward. `answers` of what is returned is a data frame. `despite` is the reason to
    measure rows although checks of their reward end with errors.

    A record that exists is not made again. `task` is that of a model whose benchmark a user's file
    brings, `path:FILE`. `on` spreads the items with Ray: `ray`, or a cluster's address. Raises
    InputError for what does not exist.
    """
    from assay.experiment.read_file import made
    from assay.experiment.tables import EvaluateSpec
    from assay.lab.run.evaluate_again import evaluate_again
    from assay.library.typed_results import evaluation_result

    values = {
        "role": "report",
        "checkpoints": ["base"],
        "repeats": repeats,
        "take": {"rows": take} if take else None,
        "sampling": {"temperature": temperature, "max_tokens": max_tokens},
        "options": dict(options or {}),
        "rendering": rendering,
    }
    lab = root_of(root)
    if isinstance(benchmark, str) and benchmark.startswith("path:"):
        benchmark = [each.value for each in read_jsonl(lab / benchmark.removeprefix("path:"))]
    if not isinstance(benchmark, str) or ":" in benchmark:
        own, values["options"] = values["options"], {}
        values |= {"data": "rows", "reward": reward}
        spec = {"model": model_of(target), "task": task or "chat"}
        spec |= {"engine": {"evaluate": on}} if on else {}
        spec |= {"agent": agent} if agent else {}
        spec["data"] = {"rows": {"source": benchmark} | ({"options": own} if own else {})}
        spec["evaluate"] = {"rows": {k: v for k, v in values.items() if v is not None}}
        return _measured_rows(spec, lab, despite=despite, progress=progress)
    if agent is not None:
        raise InputError("an agent plays rows", field="--agent", fix="--benchmark path:FILE")
    spec = made(EvaluateSpec, {**values, "benchmark": benchmark})
    with shown(progress) as observer:
        done = evaluate_again(lab, str(target), spec, observer, task, on)
    origin = Provenance(done.run, done.checkpoint, find_record(done.run, done.key))
    return evaluation_result(origin, done.made, {})


def _measured_rows(spec: dict[str, Any], root: Path, **options: Any) -> EvaluationResult:
    """Measure under a name that holds the settings and the agent's files, unless that was done.
    Raises InputError."""
    from assay.agents.task import with_agent
    from assay.lab.session.validate import read_whole
    from assay.library.typed_results import rows_result
    from assay.tasks.task import task as find_task

    named = spec = stored(spec, root)
    if "agent" in spec:
        read = read_whole({**spec, "name": "rows"}, (), root)
        own: Any = with_agent(find_task(read.task, root), read.agent, root)
        named = {**spec, "agent": own.agent.record}
    spec["name"] = f"rows-{sha256_text(canonical_json(named))[:12]}"
    (done,) = run_seeds(spec, root=root, or_resume=True, **options)
    return rows_result(done)


def samples(run: Target, *, root: Root = None) -> "DataFrame":
    """The completions of all steps of a run, one a line."""
    opened = open_run(run, root=root)
    history = History(opened.directory)
    lines = [
        {"stage": stage, **asdict(sample)}
        for stage in opened.experiment.stage
        for step in history.sampled(stage)
        for sample in history.samples(stage, step)
    ]
    empty = ("tokens", "logps", "stored", "cluster", "error")
    return frame(lines).drop(columns=[*empty], errors="ignore")


def scores(*runs: Target, root: Root = None) -> "DataFrame":
    """The scores of runs with intervals and verdicts, one checkpoint a line."""
    opened = [open_run(run, root=root) for run in runs]
    return frame({"run": str(run), **asdict(row)} for run in opened for row in run.scores)


def compare(
    *runs: Target,
    root: Root = None,
    on: str | None = None,
    control: Target | None = None,
    allow: Sequence[str] = (),
    margin: float | None = None,
    non_inferior: float | None = None,
    lang: str = "en",
    **reading: Any,
) -> RunComparison:
    """Compare runs item by item and write the page of it; the first is the control.

    A run is `NAME[@CHECKPOINT]`, one that was opened, or `FILE[@RUN]` of another tool, which is
    read as `compare.foreign_arms.ReadOptions` says. See `compare.compare_names` for the options.
    Raises InputError for what is not there or not fair.
    """
    from assay.compare.arm import ReadOptions
    from assay.compare.compare_names import compare_names
    from assay.pages.comparison_page import write_comparison

    table = compare_names(
        root_of(root),
        [str(each) for each in runs],
        control=str(control) if control else None,
        on=on,
        allow=allow,
        files=ReadOptions(**reading),
        margin=margin,
        non_inferior=non_inferior,
    )
    return RunComparison(table, write_comparison(table, root_of(root), lang), lang)


def open_run(target: Target, *, root: Root = None, lang: str = "en") -> Run:
    """A run of the lab by name, the latest that fits. Raises RunNotFound."""
    if isinstance(target, Run):
        return target
    return Run(find_run(root_of(root), parse_run_name(target)), lang)


def root_of(root: Root) -> Path:
    """The lab's root."""
    return lab_root(str(root) if root is not None else None)


def settings(overrides: Overrides) -> tuple[str, ...]:
    """Overrides as they stand after `--set`. Raises InputError for None."""
    if isinstance(overrides, Mapping):
        for path, value in overrides.items():
            if value is None:
                raise InputError("is None", field=path, fix="TOML has no such value; leave it out")
        return tuple(f"{path}={inline(value)}" for path, value in overrides.items())
    return tuple(overrides)


@contextmanager
def kept_alive() -> Iterator[None]:
    """Inside, `os._exit` of this process raises SystemExit: it would end a run with any exit code,
    0 too, and without a word. Children that were forked end as they like."""
    owner, leave = os.getpid(), os._exit

    def refused(code: int) -> NoReturn:
        if os.getpid() != owner:
            leave(code)
        raise SystemExit(f"os._exit({code})")

    os._exit = refused
    try:
        yield
    finally:
        os._exit = leave


@contextmanager
def shown(progress: bool) -> Iterator[Observer]:
    """The observer that draws progress, or none. Raises RunFailure in the place of what would end
    the process from within."""
    from assay.tasks.user_code import in_a_line

    try:
        with kept_alive():
            yield PlainProgress() if progress else Silent()
    except (Exception, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise RunFailure(f"code that was called ended the process: {in_a_line(error)}") from error


@contextmanager
def observing(callbacks: Sequence[Callback], progress: bool, lang: str) -> Iterator[Observer]:
    """Progress and pages first, then the callbacks in their order. Raises InputError for a
    callback that is none."""
    for each in callbacks:
        if not isinstance(each, Callback):
            fix = "hand in an instance of a subclass of assay.Callback"
            raise InputError(f"{each!r} is no callback", field="callbacks", fix=fix)
    with shown(progress) as drawn:
        yield Several((Reporting(drawn, lang), *map(Called, callbacks)))
