"""The trainers that an experiment can be exported to, and what their folders hold."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from assay.engines.environments import installed, misfit
from assay.errors import InputError
from assay.experiment.experiment import Experiment
from assay.experiment.stage_tables import StageSpec
from assay.trainers.outputs import swift_output, trl_output, verl_output
from assay.trainers.outputs.output import Metric, Output
from assay.trainers.outputs.swift_output import SwiftOutput
from assay.trainers.outputs.trl_output import TrlOutput
from assay.trainers.outputs.verl_output import LATEST, VerlOutput
from assay.trainers.scripts import nested, script, yaml_lines
from assay.trainers.settings import Settings
from assay.trainers.translation import Translated

Files = Mapping[str, str]
MODEL = "model"
"""The folder of a model that no hub has."""


@dataclass(frozen=True)
class Trainer:
    """A tool that trains."""

    package: str
    """With the version that the tables were read from."""
    title: str
    methods: tuple[str, ...]
    """Of the stages that it trains."""
    data: str
    """Name of the file of rows in the folder."""
    dev: str
    """Name of the file of held-out rows; empty where the tool measures none."""
    loads: tuple[str, ...]
    """Files of `in_tool` beside reward.py that the tool loads."""
    ray: str
    """What the README says of a Ray cluster."""
    files: Callable[[Settings, Translated, str], Files]
    """Configuration and launch scripts by name, given the experiment's name."""
    output: Callable[[Path, int], Output]
    """What the tool wrote into its folder, given the optimizer steps of one round."""
    metrics: Sequence[Metric]
    """What its metrics are called here."""
    resume: Callable[[Path | None], Sequence[str]]
    """Arguments of run.sh by which the tool goes on from its checkpoint, or from none."""
    draws_again: bool
    """Whether going on so draws random numbers that an unbroken training would not have drawn."""
    starts: tuple[str, ...] = ()
    """Files of `in_tool` that run.sh starts."""
    newest: str = ""
    """The file of its output in which the tool notes the step of its newest checkpoint."""


def about(tool: str) -> Mapping[str, str]:
    """What scripts say of a tool, and the check of its version."""
    name, _, version = TRAINERS[tool].package.partition("==")
    check = script("version", NAME=name, VERSION=version)
    return {"TOOL": tool, "PACKAGE": TRAINERS[tool].package, "CHECK": check}


def torchrun(tool: str, verb: str, settings: Settings, made: Translated, name: str) -> Files:
    """For trainers that read one YAML file, and work in as many processes as there are GPUs."""
    per_round = ""
    if settings.stage.method == "grpo":
        count = settings.grpo.updates.minibatches
        per_round = f"--steps_per_generation $(({count} * PASSES))"
    size = {"BATCH": settings.batch, "TOGETHER": settings.together, "PER_ROUND": per_round}
    return {
        "config.yaml": "\n".join(yaml_lines(made.values)) + "\n",
        "run.sh": script("torchrun", **about(tool), **size) + script(tool, VERB=verb),
        "slurm.sh": script("slurm", NAME=name),
    }


def trl_files(settings: Settings, made: Translated, name: str) -> Files:
    """For `trl.scripts.sft` and `trl.scripts.grpo`."""
    return torchrun("trl", settings.stage.method, settings, made, name)


def swift_files(settings: Settings, made: Translated, name: str) -> Files:
    """For `swift sft` and `swift rlhf`."""
    verb = "sft" if settings.stage.method == "sft" else "rlhf"
    # Its command takes the words of a file as its arguments', among which there is no null.
    values = {key: value for key, value in made.values.items() if value not in (None, [])}
    return torchrun("swift", verb, settings, replace(made, values=values), name)


def verl_files(settings: Settings, made: Translated, name: str) -> Files:
    """For `verl.trainer.main_ppo`, whose defaults Hydra adds."""
    own = {"defaults": ["ppo_trainer", "_self_"]}
    own |= {"hydra": {"searchpath": ["pkg://verl.trainer.config"]}}
    copied = settings.model == MODEL
    model = 'actor_rollout_ref.model.path="$HERE/model"' if copied else ""
    return {
        "config.yaml": "\n".join(yaml_lines(own | nested(made.values))) + "\n",
        "run.sh": script("verl", **about("verl"), MODEL=model),
        "slurm.sh": script("slurm_ray", NAME=name),
        "ray.sh": script("ray"),
    }


def with_transformers(checkpoint: Path | None) -> Sequence[str]:
    """For trainers that are Transformers' Trainer."""
    return () if checkpoint is None else ("--resume_from_checkpoint", str(checkpoint))


def with_verl(checkpoint: Path | None) -> Sequence[str]:
    """For verl, whose checkpoint is the folder above the actor's."""
    if checkpoint is None:
        return ("trainer.resume_mode=disable",)
    return ("trainer.resume_mode=resume_path", f"trainer.resume_from_path={checkpoint.parent}")


TRAINERS: dict[str, Trainer] = {
    "swift": Trainer(
        package="ms-swift==4.6.0",
        title="ms-swift",
        methods=("sft", "grpo"),
        data="data/train.jsonl",
        dev="data/test.jsonl",
        loads=("swift_plugin.py",),
        ray="",
        files=swift_files,
        output=SwiftOutput,
        metrics=swift_output.METRICS,
        resume=with_transformers,
        draws_again=False,
    ),
    "verl": Trainer(
        package="verl==0.9.1",
        title="verl",
        methods=("grpo",),
        data="data/train.parquet",
        dev="",
        loads=("verl_reward.py", "verl_on_cpu.py"),
        ray=", `bash ray.sh` on a Ray cluster",
        files=verl_files,
        output=VerlOutput,
        metrics=verl_output.METRICS,
        resume=with_verl,
        draws_again=True,
        newest=LATEST,
    ),
    "trl": Trainer(
        package="trl==1.16.0",
        title="TRL",
        methods=("sft", "grpo"),
        data="data/train.jsonl",
        dev="data/test.jsonl",
        loads=(),
        ray="",
        files=trl_files,
        output=TrlOutput,
        metrics=trl_output.METRICS,
        resume=with_transformers,
        draws_again=False,
        starts=("trl_log.py",),
    ),
}
"""By the name of their environment (`engines.environments`)."""


def need_trainer(name: str, stage: StageSpec) -> None:
    """Raise InputError where the tool that trains a stage has no such method, is not installed, or
    is another version than the one that was tested."""
    if (tool := stage.trainer) is None:
        return
    trainer, place = TRAINERS[tool], f"stage.{name}.trainer"
    if stage.method not in trainer.methods:
        problem = f"{trainer.title} trains no {stage.method} stages for Assay"
        able = " or ".join(trainer.methods)
        raise InputError(problem, field=place, fix=f"remove it; {tool} takes {able}")
    fix = f"assay engines add {tool}"
    if installed(tool) is None:
        raise InputError(f"{trainer.title} is not installed", field=place, fix=fix)
    if problem := misfit(tool):
        raise InputError(f"{trainer.title} was not tested so: {problem}", field=place, fix=fix)


def trainer_packages(experiment: Experiment) -> dict[str, str]:
    """The packages of the tools that train stages, and their versions."""
    used = {stage.trainer for stage in experiment.stage.values()} - {None}
    return dict(TRAINERS[tool].package.split("==") for tool in sorted(used))  # type: ignore[misc]
