"""The trainers that an experiment can be exported to, and what their folders hold."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from assay.trainers import swift_table, trl_table, verl_table
from assay.trainers.scripts import nested, script, yaml_lines
from assay.trainers.settings import Settings
from assay.trainers.translation import Row, Translated

Files = Mapping[str, str]
MODEL = "model"
"""The folder of a model that no hub has."""


@dataclass(frozen=True)
class Trainer:
    """A tool that trains."""

    package: str
    """With the version that the tables were read from."""
    title: str
    tables: Mapping[str, tuple[Row, ...]]
    """By method."""
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
    starts: tuple[str, ...] = ()
    """Files of `in_tool` that run.sh starts."""


def torchrun(tool: str, verb: str, settings: Settings, made: Translated, name: str) -> Files:
    """For trainers that read one YAML file, and work in as many processes as there are GPUs."""
    per_round = ""
    if settings.stage.method == "grpo":
        count = settings.grpo.updates.minibatches
        per_round = f"--steps_per_generation $(({count} * PASSES))"
    size = {"BATCH": settings.batch, "TOGETHER": settings.together, "PER_ROUND": per_round}
    about = {"TOOL": tool, "PACKAGE": TRAINERS[tool].package}
    return {
        "config.yaml": "\n".join(yaml_lines(made.values)) + "\n",
        "run.sh": script("torchrun", **about, **size) + script(tool, VERB=verb),
        "slurm.sh": script("slurm", NAME=name),
    }


def trl_files(settings: Settings, made: Translated, name: str) -> Files:
    """For `trl.scripts.sft` and `trl.scripts.grpo`."""
    return torchrun("trl", settings.stage.method, settings, made, name)


def swift_files(settings: Settings, made: Translated, name: str) -> Files:
    """For `swift sft` and `swift rlhf`."""
    verb = "sft" if settings.stage.method == "sft" else "rlhf"
    return torchrun("swift", verb, settings, made, name)


def verl_files(settings: Settings, made: Translated, name: str) -> Files:
    """For `verl.trainer.main_ppo`, whose defaults Hydra adds."""
    own = {"defaults": ["ppo_trainer", "_self_"]}
    own |= {"hydra": {"searchpath": ["pkg://verl.trainer.config"]}}
    copied = settings.model == MODEL
    model = 'actor_rollout_ref.model.path="$HERE/model"' if copied else ""
    about = {"TOOL": "verl", "PACKAGE": TRAINERS["verl"].package, "MODEL": model}
    return {
        "config.yaml": "\n".join(yaml_lines(own | nested(made.values))) + "\n",
        "run.sh": script("verl", **about),
        "slurm.sh": script("slurm_ray", NAME=name),
        "ray.sh": script("ray"),
    }


TRAINERS: dict[str, Trainer] = {
    "swift": Trainer(
        "ms-swift==4.6.0",
        "ms-swift",
        {"sft": swift_table.SFT, "grpo": swift_table.GRPO},
        "data/train.jsonl",
        "data/test.jsonl",
        ("swift_plugin.py",),
        "",
        swift_files,
    ),
    "verl": Trainer(
        "verl==0.9.1",
        "verl",
        {"grpo": verl_table.GRPO},
        "data/train.parquet",
        "",
        ("verl_reward.py", "verl_on_cpu.py"),
        ", `bash ray.sh` on a Ray cluster",
        verl_files,
    ),
    "trl": Trainer(
        "trl==1.16.0",
        "TRL",
        {"sft": trl_table.SFT, "grpo": trl_table.GRPO},
        "data/train.jsonl",
        "data/test.jsonl",
        (),
        "",
        trl_files,
        ("trl_log.py",),
    ),
}
"""By the name of their environment (`engines.environments`)."""
