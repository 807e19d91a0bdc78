"""Settings of a run that another tool made, in Assay's words: the table read backwards.

What was read back is then translated forwards again: where that gives another value than the
tool's, the setting means something that Assay has no words for, and is listed. What no key tells is
unknown.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from assay.errors import InputError
from assay.experiment.stage_tables import StageSpec
from assay.judge.confounds import dotted
from assay.trainers.register import nested
from assay.trainers.settings import Exported, SettingDifference, Settings, ToolTable, Values, listed
from assay.trainers.table import ACTOR, IN_LOSS, IN_REWARD, OPTIM, ROLLOUT, contents

PROMPT = f"{ROLLOUT}.prompt_length"
LIKE, AS_OPENED = contents("keys")["like"], contents("keys")["opened"]


PASSES = "gradient_accumulation_steps"


def canonical(config: Values) -> Values:
    """A configuration of Transformers' Trainer in the words that exports write."""
    known = {key: table_of(value) for key, value in config.items()}
    kind = known.get("lr_scheduler_type")
    if kind in LIKE["lr_scheduler_type"]:
        known["lr_scheduler_type"], more = LIKE["lr_scheduler_type"][kind]
        known["lr_scheduler_kwargs"] = {**(more or {}), **(known.get("lr_scheduler_kwargs") or {})}
    if "optim" in known:
        known["optim"] = LIKE["optim"].get(known["optim"], known["optim"])
    if (known.get("max_steps") or 0) < 1:  # epochs were told, and the log counts the steps
        known.pop("max_steps", None)
    opened = known.get("model_init_kwargs") or {}
    if "model_init_kwargs" in known:  # TRL's scripts write the model's defaults there
        values = {key: value for key, value in opened.items() if AS_OPENED.get(key) != value}
        known["model_init_kwargs"] = values or None
    share = known.pop("warmup_ratio", None) or known.get("warmup_steps") or 0
    if 0 < share < 1:
        known["warmup_steps"] = (
            math.ceil(share * known["max_steps"]) if "max_steps" in known else share
        )
    if not known.get("use_vllm", True):  # what is sampled is the trainer's own
        corrected = ("vllm_importance_sampling_", "rollout_importance_sampling_")
        known = {key: value for key, value in known.items() if not key.startswith(corrected)}
    passes, each = (known.get(name) for name in (PASSES, "per_device_train_batch_size"))
    if "num_generations" in known and isinstance(passes, int) and isinstance(each, int):
        known["steps_per_generation"] = known.get("steps_per_generation") or passes
        together = each * known.get("processes", 1)
        whole = known.get("generation_batch_size") or together * known["steps_per_generation"]
        known["generation_batch_size"] = whole
    if known.get("epsilon_high") is None and "epsilon" in known:
        known["epsilon_high"] = known["epsilon"]
    return known


def table_of(value: Any) -> Any:
    """A value; of a table that a tool keeps as the text that its command was given, the table."""
    if isinstance(value, str) and value.startswith("{"):
        with suppress(ValueError):
            return json.loads(value)
    return value


def with_model(config: Values, model: Any) -> Values:
    """A configuration with what it takes from the model's own: the coefficient of a router's
    auxiliary loss, and what acts in training alone. `model` is Transformers' configuration."""
    known, acts = dict(config), acting_in_training(model)
    if known.get(ROUTER, 0.0) is None:
        known[ROUTER] = (
            getattr(model, ROUTER, 0.0) if hasattr(model, "output_router_logits") else 0.0
        )
    if not acts and "disable_dropout" in known:
        known["disable_dropout"] = True
    return {**known, **{f"{OF_MODEL}{key}": value for key, value in acts.items()}}


ROUTER, OF_MODEL = "router_aux_loss_coef", "config.json."


def acting_in_training(model: Any) -> dict[str, float]:
    """What a model does in training alone, by the keys of its configuration: dropout, and the noise
    of a router."""
    return {
        key: value
        for key, value in model.to_dict().items()
        if re.search("drop|jitter", key) and isinstance(value, int | float) and value
    }


def verl_canonical(config: Values) -> Values:
    """A configuration of verl without what does not act, and with what -1 stands for."""
    known = dict(config)
    steps = known.get("trainer.total_training_steps")
    if (known.get(f"{OPTIM}.total_training_steps") or -1) < 0:
        known[f"{OPTIM}.total_training_steps"] = steps
    if (known.get(f"{OPTIM}.lr_warmup_steps") or -1) < 0 and steps:
        share = known.get(f"{OPTIM}.lr_warmup_steps_ratio") or 0.0
        known[f"{OPTIM}.lr_warmup_steps"] = int(share * steps)
    known.pop(f"{OPTIM}.lr_warmup_steps_ratio", None)
    if known.get("algorithm.adv_estimator") == "gae":
        known["critic.enable"] = True
    idle = {"trainer.total_epochs"}
    if known.get(PROMPT) == known.get("data.max_prompt_length"):
        idle |= {PROMPT}
    if not steps:  # epochs were told, and the log counts the steps
        idle |= {"trainer.total_training_steps", f"{OPTIM}.total_training_steps"}
    if not known.get(IN_LOSS):
        idle |= {f"{ACTOR}.kl_loss_coef", f"{ACTOR}.kl_loss_type"}
    if not known.get(IN_REWARD):
        idle |= {"algorithm.kl_ctrl.kl_coef", "algorithm.kl_penalty"}
    return {key: value for key, value in known.items() if key not in idle}


CANONICAL: Mapping[str, Callable[[Values], Values]] = {
    "trl": canonical,
    "swift": canonical,
    "verl": verl_canonical,
}
"""By tool: the configuration as exports would have written it, where that means the same."""

OWN_GUARD = "max_abstained_share"
"""A row about rewards that Assay gives."""
LENGTHS = ("max_length", "data.max_prompt_length", PROMPT)
"""Keys of which an export's value fits its own rows."""


@dataclass(frozen=True)
class ReadBack:
    """A stage that a tool trained."""

    stage: Exported
    unknown: tuple[str, ...]
    """Keys that nothing tells, dotted; the table has Assay's default, or what it needs."""
    differences: tuple[SettingDifference, ...]
    """By the tool's keys: what means something else than the stage's table."""


def read_back(table: ToolTable, config: Values, values: Mapping[str, Any], steps: int) -> ReadBack:
    """A stage's settings from a tool's configuration; `values` are those known otherwise, by their
    dotted keys, and count for more. The log has so many steps."""
    told: dict[str, Any] = {"steps": steps}
    unknown = list[str]()
    for key, cell in table.cells.items():
        if key in values or not (cell.read or (cell.keys and not cell.how and cell.value is None)):
            continue
        try:
            told[key] = cell.told(config)
        except KeyError:
            unknown.append(key)
    told |= values
    if values["method"] == "grpo":
        told.setdefault("prompts", 1)  # the one number that a stage must have
    stage, refused = stage_of(told)
    unknown = [key for key in unknown if key != "steps"] + refused
    return ReadBack(stage, tuple(unknown), tuple(unlike(table, config, stage)))


STAGE: TypeAdapter[Any] = TypeAdapter(StageSpec)


def stage_of(told: Mapping[str, Any]) -> tuple[Exported, list[str]]:
    """The stage that dotted keys make, and the keys whose values Assay does not take. Raises
    InputError for values that contradict each other."""
    told, refused = dict(told), []
    while True:
        try:
            return STAGE.validate_python(nested(told)), refused
        except ValidationError as error:
            # The first part of a place is the method, which chose the kind of stage.
            places = {".".join(map(str, each["loc"][1:])) for each in error.errors()}
            wrong = [key for key in told if any(f"{p}.".startswith(f"{key}.") for p in places)]
            if not wrong:
                problem = "its settings together are no stage of Assay's"
                raise InputError(problem, fix=error.errors()[0]["msg"]) from error
            refused += wrong
            told = {key: value for key, value in told.items() if key not in wrong}


OTHER_LOSS = re.compile(
    r"(loss_type|loss_scale|is_binary_loss_scale|enable_dft_loss|label_smoothing_factor"
    r"|neftune_noise_alpha|average_tokens_across_devices|router_aux_loss_coef"
    r"|(config\.json|model_init_kwargs)\..*(drop|jitter|router).*)"
)
"""Keys that make a loss something else than the mean of -log p over the trained tokens."""


def likelihood(config: Values, differences: Sequence[SettingDifference]) -> bool:
    """Whether the loss that an sft stage logs is the mean of -log p over the trained tokens: the
    configuration is there, and nothing in which it differs moves the loss, or may do so."""
    moved = (OTHER_LOSS.fullmatch(d.key) or d.what.endswith(UNKNOWN_KEY) for d in differences)
    return "learning_rate" in config and not any(moved)


def unlike(table: ToolTable, config: Values, stage: Exported) -> Iterator[SettingDifference]:
    """What the tool's configuration says else than an export of the stage would, and what the
    table says that the tool does else."""
    seed = seed if isinstance(seed := config.get("seed"), int) else 0
    settings = Settings("imported", stage, "", seed, stage.steps or 1, 1, 0, 1, True, {})
    yield from otherwise(table, config, table.written(settings))
    idle = {OWN_GUARD} if config.get("use_vllm", True) else {OWN_GUARD, "importance"}
    for key, each in table.unlike(settings):
        if key not in idle:
            yield SettingDifference(key, each.what)


def otherwise(table: ToolTable, config: Values, written: Values) -> Iterator[SettingDifference]:
    """The keys of a configuration that an export writes otherwise, that act though it switched them
    off, or that no table knows."""
    named = {key for cell in table.cells.values() for key in cell.keys}
    for key, value in config.items():
        if table.is_idle(key):
            continue
        switch = listed(table.gated, key)
        if key.startswith(OF_MODEL):
            yield SettingDifference(key, f"is {value!r} in training, where Assay's model has none")
        elif key in LENGTHS and value is not None:
            yield SettingDifference(key, f"is {value!r}: longer rows are cut or left out")
        elif key in written:
            yield from unlike_value(table, key, value, written[key])
        elif switch is not None and not same(config.get(switch), written.get(switch)):
            yield SettingDifference(key, f"is {value!r}, and {switch} is {config.get(switch)!r}")
        elif switch is None and key not in named and value is not None:
            yield SettingDifference(key, f"is {value!r}, {UNKNOWN_KEY}")


def changed(
    tool: str, table: ToolTable, config: Values, written: Values
) -> list[SettingDifference]:
    """What a folder's own settings were trained with else, by its configuration."""
    known = CANONICAL[tool](config)
    told = {
        key: value
        for key, value in known.items()
        if key not in (*LENGTHS, *contents("keys")["by_run"]["keys"])
    }
    return [*otherwise(table, told, written)]


UNKNOWN_KEY = "a key that the tables do not know"


def unlike_value(table: ToolTable, key: str, value: Any, ours: Any) -> Iterator[SettingDifference]:
    """A key whose value an export would not have written; of a table, each of its own keys."""
    if isinstance(value, Mapping) and value:
        theirs, own = dotted(value), dotted(ours or {})
        for inner in {**own, **theirs}:
            if not table.is_idle(f"{key}.{inner}"):
                yield from unlike_value(table, f"{key}.{inner}", theirs.get(inner), own.get(inner))
    elif not same(value, ours):
        yield SettingDifference(key, f"is {value!r}, where an export has {ours!r}")


def same(one: Any, other: Any) -> bool:
    """Whether a tool takes two values alike: none and nothing, numbers, names in any order."""
    if isinstance(one, int | float) and isinstance(other, int | float):
        return math.isclose(one, other)
    if isinstance(one, list) and isinstance(other, list) and all(isinstance(n, str) for n in one):
        return sorted(one) == sorted(map(str, other))
    return one == other or (one in NOTHING and other in NOTHING)


NOTHING: tuple[Any, ...] = (None, "", [], {})
