"""Finds what a tool left in a folder that was made without Assay: its log, its configuration.

TRL keeps its arguments as a pickle, of which the names and values are read and nothing is run;
ms-swift has args.json, verl the files that Hydra writes beside the run. What is not there is not
known, and what looks like a secret is not taken.
"""

import pickle
import pickletools
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

import yaml

from assay.data.hashing import sha256_text
from assay.errors import InputError
from assay.models.folder import read_object
from assay.trainers.outputs.output import (
    SwiftOutput,
    TrlOutput,
    checkpoint_folders,
    logged_entries,
)
from assay.trainers.outputs.verl_output import META, VerlOutput, lone_actor

SECRET = re.compile(r"(?<!\beos)(?<!\bpad)(?<!\bbos)(^|_)(token|key|secret|password)$")
OBJECT = re.compile(r"[A-Z]\w*\(")
"""How the text begins that Python prints of a whole object, secrets included."""
LONGEST = 300
"""Characters of a setting."""
METHODS = {"GRPOConfig": "grpo", "SFTConfig": "sft"}
"""Classes of TRL's arguments, for the methods that are taken over."""
ADAPTER = "adapter_config.json"
LORA_PATH, RESUMED = "actor_rollout_ref.model.lora_adapter_path", "trainer.resume_from_path"


Output = TrlOutput | VerlOutput


@dataclass(frozen=True)
class FolderContent:
    """What a folder holds."""

    method: str
    output: Callable[[int], Output]
    """Given the optimizer steps of one round."""
    configuration: Mapping[str, Any] = field(default_factory=dict)
    """The tool's, by its own keys."""
    model: str = ""
    """What the tool opened; empty where the folder does not say."""
    package: str = ""
    """The tool with its version; empty where the folder does not say."""
    adapter: Mapping[str, Any] | None = None
    """peft's configuration of the adapter that was trained."""
    start: str | None = None
    """What the tool says that it went on from beside the model; empty where it says that it began
    with the model alone, None where the folder does not say."""


class Inert:
    """Stands for every object of a pickle; knows what it was made of, and does nothing."""

    def __new__(cls, *values: Any, **named: Any) -> "Inert":
        """Whatever the pickle gives."""
        made = object.__new__(cls)
        made.values, made.state = values, {}
        return made

    values: tuple[Any, ...]
    state: Any

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __setitem__(self, key: Any, value: Any) -> None:
        """Of a mapping."""

    def append(self, value: Any) -> None:
        """Of a list."""


class Names(pickle.Unpickler):
    """Reads a pickle without running anything of it."""

    def __init__(self, stream: Any):
        super().__init__(stream)
        self.names: list[str] = []

    def find_class(self, module: str, name: str, /) -> Any:
        """An inert class of its own for each name."""
        self.names.append(name)
        return type(name, (Inert,), {})

    def persistent_load(self, pid: Any, /) -> None:
        """Tensors are not read."""


def trl_arguments(file: Path) -> tuple[str, dict[str, Any]]:
    """The class and the values of training_args.bin. Raises InputError."""
    try:
        with zipfile.ZipFile(file) as archive:
            (member,) = [e for e in archive.infolist() if e.filename.endswith("/data.pkl")]
            # torch compresses nothing. Python fills its table of objects up to the highest number.
            if member.file_size > (size := file.stat().st_size):
                raise ValueError("compressed")
            written = archive.read(member)
        for code, argument, _ in pickletools.genops(written):
            if code.name == "LONG_BINPUT" and argument > size:  # type: ignore[operator]
                raise ValueError("an object of a number beyond the file's size")
        reader = Names(BytesIO(written))
        state = reader.load().state
        refuse_expanded(state)
        processes = state["distributed_state"].state["num_processes"]
        values = kept({key: plain_value(value) for key, value in state.items()})
    except Exception as error:  # whatever an inert reader meets in a file that was cut or changed
        problem = f"holds no arguments of TRL: {type(error).__name__}"
        raise InputError(problem, file=file, fix="restore it, or move it away") from error
    return reader.names[0], values | {"processes": processes}


def plain_value(value: Any) -> Any:
    """A choice of Transformers', and a class or a number format, as its text; an object of settings
    as a table of them."""
    if isinstance(value, type):
        return value.__name__
    if isinstance(value, Inert):
        value = value.values[0] if len(value.values) == 1 else value.state
    if isinstance(value, dict):
        return {key: plain_value(each) for key, each in value.items()}
    return [*map(plain_value, value)] if isinstance(value, list) else value


def kept(values: Mapping[str, Any]) -> dict[str, Any]:
    """What a manifest may hold: plain values, whole numbers as such, of a long text its sha256, and
    no secret."""
    plain = (str, int, float, bool, list, dict, type(None))
    tensors: dict[str, Any] = {}
    for key, value in values.items():
        if not isinstance(value, plain) or SECRET.search(str(key)):
            continue
        if isinstance(value, str) and len(value) > LONGEST:
            if not OBJECT.match(value):
                tensors[key] = f"{len(value)} characters of sha256 {sha256_text(value)}"
        elif isinstance(value, float) and key.endswith("_steps") and value.is_integer():
            tensors[key] = int(value)
        else:
            tensors[key] = kept(value) if isinstance(value, dict) else value
    return tensors


def find_trl(folder: Path, configuration: Path | None, log: Path | None) -> FolderContent:
    """See `find`. Folders of `output_dir`."""
    if (folder / "args.json").is_file():
        raise InputError("is ms-swift's: it holds args.json", file=folder, fix="--from swift")
    saved = checkpoint_folders(folder)
    if not saved:
        problem = "holds nothing of TRL's: no checkpoint-N with a trainer_state.json, no weights"
        raise InputError(problem, file=folder, fix="name the trainer's output_dir")
    last = saved[-1][1]
    sampled = any("reward" in entry for entry in logged_entries(folder))
    method, values = "grpo" if sampled else "sft", dict[str, Any]()
    if (last / "training_args.bin").is_file():
        kind, values = trl_arguments(last / "training_args.bin")
        if kind not in METHODS:
            problem = f"was trained with {kind}; runs of SFTTrainer and GRPOTrainer are taken over"
            raise InputError(problem, file=folder)
        method = METHODS[kind]
    state = last / "trainer_state.json"
    values |= {"max_steps": read_object(state).get("max_steps")} if state.is_file() else {}
    adapter = adapter_of(last)
    card = folder / "README.md"
    version = re.search(r"TRL: (\S+)", card.read_text("utf-8")) if card.is_file() else None
    model = (adapter or {}).get("base_model_name_or_path") or ""
    return FolderContent(
        method,
        lambda updates: TrlOutput(folder, updates, values.get("reward_weights")),
        values,
        model,
        f"trl=={version[1]}" if version else "",
        adapter,
    )


def find_swift(folder: Path, configuration: Path | None, log: Path | None) -> FolderContent:
    """See `find`. Folders of `output_dir`, with their version."""
    if not (folder / "args.json").is_file():
        versions = sorted(each.parent for each in folder.glob("v*-*/args.json"))
        problem = "holds nothing of ms-swift's: no args.json"
        if len(versions) > 1:
            problem = f"holds {len(versions)} runs of ms-swift's"
        if len(versions) != 1:
            fix = f"name one: {versions[-1]}" if versions else "name its output_dir/vN-TIME"
            raise InputError(problem, file=folder, fix=fix)
        folder = versions[0]
    values = read_object(folder / "args.json")
    if (kind := values.get("rlhf_type")) not in (None, "grpo"):
        problem = f"was trained with {kind}; runs of sft and grpo are taken over"
        raise InputError(problem, file=folder)
    saved = checkpoint_folders(folder)
    # What args.json leaves open, the trainer has decided.
    decided = saved[-1][1] / "training_args.bin" if saved else None
    made = trl_arguments(decided)[1] if decided is not None and decided.is_file() else {}
    told = {key: value for key, value in values.items() if value is not None}
    version = values.get("swift_version")
    return FolderContent(
        kind or "sft",
        lambda updates: SwiftOutput(folder, updates, values.get("reward_weights")),
        {**made, **kept(told), "processes": values.get("global_world_size") or 1},
        values.get("model") or "",
        f"ms-swift=={version}" if version else "",
        adapter_of(saved[-1][1]) if saved else None,
        went_on(values, ("adapters", "resume_from_checkpoint"), folder),
    )


def went_on(values: Mapping[str, Any], keys: Sequence[str], folder: Path) -> str | None:
    """See `FolderContent.start`; by the keys that say it, where they are not the folder's own."""
    told, own = list[str](), folder.resolve()
    for key in keys:
        known = values.get(key)
        places = [str(p) for p in (known if isinstance(known, list) else [known]) if p]
        # One that is relative was so where the tool was started.
        outside = [
            place
            for place in places
            if not any((up / place).resolve().is_relative_to(own) for up in own.parents)
        ]
        told += [f"{key} {', '.join(outside)}"] if outside else []
    return "; ".join(told) if told or values.keys() >= {*keys} else None


def find_verl(folder: Path, configuration: Path | None, log: Path | None) -> FolderContent:
    """See `find`. Folders of `trainer.default_local_dir`; Hydra's configuration and the file
    logger's lines lie elsewhere, and are looked for where verl puts them by default."""
    lone = lone_actor(folder)
    if lone:
        kind = adapter_of(lone.folder) or adapter_of(lone.folder, META)
        return FolderContent("grpo", lambda updates: VerlOutput(folder, lone=lone), adapter=kind)
    if not any(folder.glob("global_step_*/actor")) and not any(folder.glob("metrics*.jsonl")):
        problem = "holds nothing of verl's: no global_step_N/actor, no weights"
        fix = "name verl's trainer.default_local_dir"
        raise InputError(problem, file=folder, fix=fix)
    file = configuration or next(hydra_files(folder), None)
    values = hydra_values(file) if file else {}
    project, name = (values.get(f"trainer.{key}_name") for key in ("project", "experiment"))
    places = [up / f"{project}/{name}.jsonl" for up in [*folder.resolve().parents][:3]]
    own = sorted(folder.glob("metrics*.jsonl"))
    logs = [log] if log else own or [each for each in places if each.is_file()][:1]
    if not logs or not logs[0].is_file():
        problem = "has no log of verl's file logger beside it"
        fix = '--log FILE: what trainer.logger = ["file"] wrote'
        raise InputError(problem, file=folder, fix=fix)
    kept_in = values.get("trainer.rollout_data_dir")
    rollouts = Path(kept_in) if kept_in else None
    metas = sorted(folder.glob(f"global_step_*/actor/{META}"))
    model = values.get("actor_rollout_ref.model.path") or ""
    made = VerlOutput(folder, logs=tuple(logs), rollouts=rollouts)
    adapter = checked_adapter(metas[-1]) if metas else None
    told = [LORA_PATH, *([RESUMED] if values.get("trainer.resume_mode") == "resume_path" else [])]
    start = went_on(values, told, folder)
    return FolderContent("grpo", lambda updates: made, kept(values), model, "", adapter, start)


def hydra_files(folder: Path) -> Iterator[Path]:
    """The configurations of Hydra near a folder that name it, newest first."""
    for up in [folder, *[*folder.resolve().parents][:3]]:
        near = [*up.glob(".hydra/config.yaml"), *up.glob("outputs/*/*/.hydra/config.yaml")]
        for file in sorted(near, reverse=True):
            named = hydra_values(file).get("trainer.default_local_dir")
            if named and (up / named).resolve() == folder.resolve():
                yield file


FINDERS: Mapping[str, Callable[[Path, Path | None, Path | None], FolderContent]] = {
    "trl": find_trl,
    "swift": find_swift,
    "verl": find_verl,
}


def find(
    tool: str, folder: Path, configuration: Path | None = None, log: Path | None = None
) -> FolderContent:
    """What `tool` left in a folder. `configuration` and `log` are verl's, where they lie elsewhere.

    Raises InputError for a folder that the tool did not write, or a file that is damaged.
    """
    if not folder.is_dir():
        raise InputError("no such folder", file=folder)
    return FINDERS[tool](folder, configuration, log)


def adapter_of(checkpoint: Path, name: str = ADAPTER) -> Mapping[str, Any] | None:
    """peft's configuration in a checkpoint, or verl's notes of it."""
    file = checkpoint / name
    return checked_adapter(file) if file.is_file() else None


def checked_adapter(file: Path) -> Mapping[str, Any]:
    """An adapter's configuration. Raises InputError."""
    content = read_object(file)
    for key in ("r", "lora_alpha") if content.get("peft_type", "LORA") == "LORA" else ():
        if not isinstance(content.get(key), int | float):
            raise InputError("is no number", file=file, field=key, fix="restore it")
    return content


MOST_VALUES = 100_000
"""Of a configuration, written out."""


def refuse_expanded(value: Any) -> None:
    """Raise ValueError where references to parts (YAML's aliases, a pickle's memo) make a value far
    larger, written out, than its file."""
    left, seen = [value], 0
    while left:
        here, seen = left.pop(), seen + 1
        if seen > MOST_VALUES:
            raise ValueError("too many values")
        if isinstance(here, dict | list | tuple):
            left += here.values() if isinstance(here, dict) else here


def flat(values: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Nested tables by dotted keys."""
    entries: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            entries |= flat(value, f"{path}{key}.")
        else:
            entries[f"{path}{key}"] = value
    return entries


REFERENCE = re.compile(r"\$\{(?:oc\.select:)?([\w.]+)(?:,[^}]*)?\}")


def hydra_values(file: Path) -> dict[str, Any]:
    """Hydra's configuration by dotted keys, references to other keys replaced by their values.
    Raises InputError."""
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
        refuse_expanded(content)
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise InputError("is no YAML", file=file, fix="name Hydra's .hydra/config.yaml") from error
    values = flat(content if isinstance(content, dict) else {})

    def resolved(value: Any, depth: int = 0) -> Any:
        if not isinstance(value, str) or depth > MOST_REFERENCES:
            return value
        if whole := REFERENCE.fullmatch(value):
            return resolved(values.get(whole[1], value), depth + 1)
        return REFERENCE.sub(lambda m: str(resolved(values.get(m[1], m[0]), depth + 1)), value)

    return {key: resolved(value) for key, value in values.items()}


MOST_REFERENCES = 8
"""Of one value to the next."""
