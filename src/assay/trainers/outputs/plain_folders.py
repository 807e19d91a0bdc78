"""Finds what a tool left in a folder that was made without Assay: its log, its configuration.

TRL keeps its arguments as a pickle, of which the names and values are read and nothing is run;
ms-swift has args.json, verl the files that Hydra writes beside the run. What is not there is not
known, and what looks like a secret is not taken.

Of verl 0.9.1 also reads the file logger's lines, rollouts and checkpoints. The log is that of
`trainer.logger = ["file"]`, which verl begins anew where it is resumed. Read from the package's
trainer (V1), and held by tests that train with it. A checkpoint is shards that `merged` makes one
file of, inside verl.
"""

import pickle
import pickletools
import re
import subprocess
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any, ClassVar

import yaml

from assay.data.files import sha256_text
from assay.engines.environments import installed
from assay.errors import InputError
from assay.judge.confounds import dotted
from assay.models.folder import read_object
from assay.trainers.outputs.output import (
    MetricLine,
    RecordedCompletion,
    Saved,
    Step,
    SwiftOutput,
    TrlOutput,
    by_key,
    checkpoint_folders,
    holds_weights,
    log_lines,
    logged_entries,
    metrics_of,
    translated,
)

LATEST = "latest_checkpointed_iteration.txt"

STARTS = "training/global_step"
"""Every line of a training step has it."""


@dataclass(frozen=True)
class VerlOutput:
    """See `output`; `folder` is verl's `trainer.default_local_dir`."""

    folder: Path
    updates: int = 1
    """No matter here: verl counts rounds."""
    logs: tuple[Path, ...] = ()
    """The file logger's, oldest first; omitted: metrics*.jsonl in the folder."""
    rollouts: Path | None = None
    """verl's `trainer.rollout_data_dir`; omitted: `rollouts` in the folder."""
    metrics: ClassVar[Sequence[MetricLine]] = metrics_of("verl")

    def steps(self, after: int = 0, ended: bool = False) -> Iterator[Step]:
        """See `output`. A step's rollouts are written before its line in the log, or beside it."""
        lines: dict[int, Mapping[str, Any]] = {}
        for file in self.logs or sorted(self.folder.glob("metrics*.jsonl")):
            for number, line in enumerate(log_lines(file), 1):
                step, data = line.get("step"), line.get("data")
                if type(step) is not int or not isinstance(data, dict):
                    problem = "is no step of verl's file logger"
                    raise InputError(problem, file=file, line=number)
                lines = {known: each for known, each in lines.items() if known <= step}
                # Validation before the first step, or behind the last, has a line of its own.
                lines[step] = data if STARTS in data else {**lines.get(step, {}), **data}
        for number in sorted(lines):
            if number <= after or STARTS not in lines[number]:
                continue
            file = (self.rollouts or self.folder / "rollouts") / f"{number}.jsonl"
            there, newest = file.is_file(), number == max(lines)
            if newest and file.parent.is_dir() and not (whole(file) if there else ended):
                return
            yield Step(
                number,
                translated("verl", self.metrics, [lines[number]]),
                self.answers(file) if there else (),
            )

    def answers(self, file: Path) -> tuple[RecordedCompletion, ...]:
        """The completions of a step, as the journal of an exported folder knows them. Raises
        InputError for a file that was cut short."""
        if not whole(file):
            raise InputError("ends in the middle of a line", file=file, fix="restore it")
        known = by_key(self.folder) if self.journalled else {}
        return tuple(
            known.get(str(line.get("uid", "")).rpartition("_")[0]) or answer(line)
            for line in log_lines(file)
        )

    @cached_property
    def journalled(self) -> bool:
        """Whether the folder was exported."""
        return (self.folder / "answers").is_dir()

    def checkpoints(self) -> Sequence[Saved]:
        """See `output`; verl names the last whole one in a file."""
        try:
            last = int((self.folder / LATEST).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return []
        folders = [(int(m[1]), p) for p in self.folder.glob("global_step_*") if (m := STEP(p.name))]
        actors = sorted((step, path / "actor") for step, path in folders if step <= last)
        return [Saved(step, path) for step, path in actors if path.is_dir()]

    def weights(self, saved: Saved, scratch: Path) -> Path:
        """See `output`. Raises InputError where verl is not installed, or cannot merge."""
        if holds_weights(saved.folder):
            return saved.folder
        return merged(saved.folder, scratch / saved.folder.parent.name)


META = "lora_train_meta.json"
"""What verl notes of an adapter beside its shards."""


STEP = re.compile(r"global_step_(\d+)").fullmatch


def whole(file: Path) -> bool:
    """Whether a file ends with the end of a line."""
    return file.read_bytes().endswith(b"\n")


def answer(line: Mapping[str, Any]) -> RecordedCompletion:
    """A line of verl's rollouts."""
    score = line.get("score")
    return RecordedCompletion(
        text=str(line.get("output", "")),
        reward=float(score) if isinstance(score, int | float) else None,
        prompt=str(line.get("input", "")),
        why="" if isinstance(score, int | float) else "verl wrote no score",
    )


MERGE = """
import pickle, torch, torch.distributed.tensor
# verl unpickles whatever a shard holds, which would run the code of whoever wrote the folder.
load_any = torch.load
def load_tensors(file, **options):
    try:
        return load_any(file, **{**options, "weights_only": True})
    except pickle.UnpicklingError:
        raise SystemExit(f"{file} holds other things than tensors")
torch.load = load_tensors
# verl rounds what it merges to bfloat16, which would lose most of a small change.
torch.Tensor.bfloat16 = lambda tensor: tensor
from verl.model_merger.__main__ import main
main()
"""


def merged(actor: Path, target: Path) -> Path:
    """The folder of a checkpoint's weights, or of its adapter, in verl's own precision.

    Raises InputError where verl is not installed, or cannot merge the shards.
    """
    python = installed("verl")
    if python is None:
        problem = "verl's shards are merged by verl, which is not installed"
        raise InputError(problem, file=actor, fix="assay engines add verl")
    if not (actor / "fsdp_config.json").is_file():
        problem = "holds no shards of FSDP"
        fix = "merge it with verl.model_merger, and name the folder that it wrote as the model"
        raise InputError(problem, file=actor, fix=fix)
    arguments = ("merge", "--backend", "fsdp", "--local_dir", actor, "--target_dir", target)
    command = [str(python), "-c", MERGE, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise InputError(f"verl merges no model of it: {last}", file=actor, fix="restore its files")
    adapter = target / "lora_adapter"
    if not adapter.is_dir():
        return target
    if not (actor / META).is_file():
        problem = "is missing, and nothing else says the rank and the alpha of the adapter"
        raise InputError(problem, file=actor / META, fix="restore it beside the shards")
    return adapter


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
    package = f"trl=={version[1]}" if version else ""

    def output(updates: int) -> Output:
        return TrlOutput(folder, updates, values.get("reward_weights"))

    return FolderContent(method, output, values, model, package, adapter)


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
    made |= {**kept(told), "processes": values.get("global_world_size") or 1}
    package = f"ms-swift=={version}" if (version := values.get("swift_version")) else ""
    adapter = adapter_of(saved[-1][1]) if saved else None
    start = went_on(values, ("adapters", "resume_from_checkpoint"), folder)

    def output(updates: int) -> Output:
        return SwiftOutput(folder, updates, values.get("reward_weights"))

    model = values.get("model") or ""
    return FolderContent(kind or "sft", output, made, model, package, adapter, start)


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
    if not any(folder.glob("global_step_*/actor")) and not any(folder.glob("metrics*.jsonl")):
        problem = "holds nothing of verl's: no global_step_N/actor"
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


def adapter_of(checkpoint: Path) -> Mapping[str, Any] | None:
    """peft's configuration in a checkpoint."""
    file = checkpoint / ADAPTER
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


REFERENCE = re.compile(r"\$\{(?:oc\.select:)?([\w.]+)(?:,[^}]*)?\}")


def hydra_values(file: Path) -> dict[str, Any]:
    """Hydra's configuration by dotted keys, references to other keys replaced by their values.
    Raises InputError."""
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
        refuse_expanded(content)
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise InputError("is no YAML", file=file, fix="name Hydra's .hydra/config.yaml") from error
    tables = dotted(content if isinstance(content, dict) else {})
    values = {key: value for key, value in tables.items() if value != {}}

    def resolved(value: Any, depth: int = 0) -> Any:
        if not isinstance(value, str) or depth > MOST_REFERENCES:
            return value
        if whole := REFERENCE.fullmatch(value):
            return resolved(values.get(whole[1], value), depth + 1)
        return REFERENCE.sub(lambda m: str(resolved(values.get(m[1], m[0]), depth + 1)), value)

    return {key: resolved(value) for key, value in values.items()}


MOST_REFERENCES = 8
"""Of one value to the next."""
