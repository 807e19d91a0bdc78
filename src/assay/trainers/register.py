"""The trainers that an experiment can be exported to, the text files of an exported folder
(configuration in YAML, launch scripts, README), and what a tool's keys and metrics are here, line
by line: `assay engines keys TOOL`.

Scripts are for bash; in each, in `launch`, what stands as `{NAME}` is filled in.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from assay.engines.environments import installed, misfit
from assay.errors import InputError, look_up
from assay.experiment.experiment import Experiment
from assay.experiment.stage_tables import StageSpec
from assay.trainers.outputs.output import SwiftOutput, TrlOutput
from assay.trainers.outputs.plain_folders import LATEST, VerlOutput
from assay.trainers.settings import Settings, ToolCell, Translated
from assay.trainers.table import table

MODEL = "model"
"""The folder of a model that no hub has."""


def with_transformers(checkpoint: Path | None) -> Sequence[str]:
    """For trainers that are Transformers' Trainer."""
    return () if checkpoint is None else ("--resume_from_checkpoint", str(checkpoint))


def with_verl(checkpoint: Path | None) -> Sequence[str]:
    """For verl, whose checkpoint is the folder above the actor's."""
    if checkpoint is None:
        return ("trainer.resume_mode=disable",)
    return ("trainer.resume_mode=resume_path", f"trainer.resume_from_path={checkpoint.parent}")


@dataclass(frozen=True)
class Trainer:
    """A tool that trains."""

    package: str
    """With the version that the tables were read from."""
    title: str
    output: type[TrlOutput | VerlOutput]
    """Reads what the tool wrote into its folder, given the optimizer steps of one round."""
    methods: tuple[str, ...] = ("sft", "grpo")
    """Of the stages that it trains."""
    data: str = "data/train.jsonl"
    """Name of the file of rows in the folder."""
    dev: str = "data/test.jsonl"
    """Name of the file of held-out rows; empty where the tool measures none."""
    loads: tuple[str, ...] = ()
    """Files of `in_tool` beside reward.py that the tool loads."""
    ray: str = ""
    """What the README says of a Ray cluster."""
    resume: Callable[[Path | None], Sequence[str]] = with_transformers
    """Arguments of run.sh by which the tool goes on from its checkpoint, or from none."""
    draws_again: bool = False
    """Whether going on so draws random numbers that an unbroken training would not have drawn."""
    starts: tuple[str, ...] = ()
    """Files of `in_tool` that run.sh starts."""
    newest: str = ""
    """The file of its output in which the tool notes the step of its newest checkpoint."""


class _Dumper(yaml.SafeDumper):
    """Puts into quotes a text such as 1e-6, which OmegaConf reads as a number, PyYAML as a text."""


_Dumper.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+.]?[0-9][-+.\w]*"), [*"-+.0123456789"]
)


def yaml_text(values: Mapping[str, Any]) -> str:
    """Nested settings as YAML that PyYAML and OmegaConf read alike."""
    return yaml.dump(values, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=math.inf)


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted keys as tables inside tables."""
    made: dict[str, Any] = {}
    for key, value in values.items():
        *path, last = key.split(".")
        table = made
        for part in path:
            table = table.setdefault(part, {})
        table[last] = value
    return made


README = """\
# {NAME}, stage {STAGE}, for {PACKAGE}

1. Install {PACKAGE} and `assay-lab[train]`, there or in the Python ASSAY_PYTHON; `bash run.sh`.
2. `sbatch slurm.sh` trains on the nodes of a Slurm job{RAY}.
3. `translation.json` has every setting as it was translated, and {COUNT}; {PROOF}.
"""
"""Three lines."""


def script(name: str, **values: Any) -> str:
    """A launch script, of `launch/NAME.sh`, with its names in braces filled in."""
    text = files("assay.trainers").joinpath(f"launch/{name}.sh").read_text(encoding="utf-8")
    return filled(text, **values)


def filled(template: str, **values: Any) -> str:
    """A template with its names in braces filled in; the braces of bash stay."""
    for name, value in values.items():
        template = template.replace("{" + name + "}", str(value))
    return template


def folder_texts(tool: str, settings: Settings, made: Translated, name: str) -> Mapping[str, str]:
    """Configuration and launch scripts by the file, given the experiment's name."""
    package, values = TRAINERS[tool].package, made.values
    own, _, version = package.partition("==")
    check = script("version", NAME=own, VERSION=version)
    about = {"TOOL": tool, "PACKAGE": package, "CHECK": check}
    if tool == "verl":  # Hydra adds the defaults of `verl.trainer.main_ppo`
        defaults = {"defaults": ["ppo_trainer", "_self_"]}
        defaults |= {"hydra": {"searchpath": ["pkg://verl.trainer.config"]}}
        model = 'actor_rollout_ref.model.path="$HERE/model"' if settings.model == MODEL else ""
        return {
            "config.yaml": yaml_text(defaults | nested(values)),
            "run.sh": script("verl", **about, MODEL=model),
            "slurm.sh": script("slurm_ray", NAME=name),
            "ray.sh": script("ray"),
        }
    method, per_round = settings.stage.method, ""
    if method == "grpo":
        count = settings.grpo.updates.minibatches
        per_round = f"--steps_per_generation $(({count} * PASSES))"
    if tool == "swift":
        # Its command takes the words of a file as its arguments', among which there is no null.
        values = {key: value for key, value in values.items() if value not in (None, [])}
    verb = "rlhf" if (tool, method) == ("swift", "grpo") else method
    size = {"BATCH": settings.batch, "TOGETHER": settings.together, "PER_ROUND": per_round}
    return {
        "config.yaml": yaml_text(values),
        "run.sh": script("torchrun", **about, **size) + script(tool, VERB=verb),
        "slurm.sh": script("slurm", NAME=name),
    }


TRAINERS: dict[str, Trainer] = {
    "swift": Trainer("ms-swift==4.6.0", "ms-swift", SwiftOutput, loads=("swift_plugin.py",)),
    "verl": Trainer(
        "verl==0.9.1",
        "verl",
        VerlOutput,
        methods=("grpo",),
        data="data/train.parquet",
        dev="",
        loads=("verl_reward.py", "verl_on_cpu.py"),
        ray=", `bash ray.sh` on a Ray cluster",
        resume=with_verl,
        draws_again=True,
        newest=LATEST,
    ),
    "trl": Trainer("trl==1.16.0", "TRL", TrlOutput, starts=("trl_log.py",)),
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


@dataclass(frozen=True, slots=True)
class StatusLine:
    """One line for people."""

    ours: str
    """A setting of a stage, a metric, or in parentheses what is neither."""
    theirs: tuple[str, ...]
    how: str
    unlike: str


def lines(tool: str, wanted: str | None = None) -> list[StatusLine]:
    """All lines of a tool, or those with a key of either side that holds `wanted`, each once.
    Raises InputError."""
    trainer = look_up(TRAINERS, tool, "trainer")
    rows = [line for method in trainer.methods for line in of_method(tool, method)]
    for each in trainer.output.metrics:
        how = ("1 less it" if each.rest else "as it is") if each.ours else ""
        rows.append(StatusLine(each.ours or "(metric)", (each.theirs,), how, each.unlike))
    return [*dict.fromkeys(each for each in rows if wanted is None or names(each, wanted))]


def names(line: StatusLine, wanted: str) -> bool:
    """Whether a line is of a key; the tool's may be patterns."""
    return any(wanted in key or fnmatchcase(wanted, key) for key in (line.ours, *line.theirs))


def of_method(tool: str, method: str) -> Iterator[StatusLine]:
    """The lines of one method."""
    own = table(tool, method)
    for key, cell in own.cells.items():
        parts = [("refused: " if each.refused else "") + each.what for each in cell.unlike]
        yield StatusLine(key, cell.keys, words(cell), "; ".join(parts))
    for why, keys in own.idle.items():
        yield StatusLine("(without effect)", tuple(keys.split()), why, "")
    for switch, keys in own.gated.items():
        yield StatusLine("(off)", tuple(keys.split()), f"acts where {switch} is another", "")


def words(cell: ToolCell) -> str:
    """How a value is written."""
    if cell.how or not cell.keys:
        return cell.how
    if cell.names is not None:
        pairs = ((own, v if isinstance(v, tuple) else (v,)) for own, v in cell.names.items())
        return "; ".join(f"{own}: {' '.join(map(str, theirs))}" for own, theirs in pairs)
    return "as it is" if cell.none is None else f"omitted: {cell.none:g}"
