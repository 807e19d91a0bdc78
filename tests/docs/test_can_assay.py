"""The page "Can Assay ...?" tells the truth, and its runs in other tools' words are accepted."""

import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import assay
from assay.errors import InputError
from assay.experiment.experiment import Experiment
from assay.experiment.stage_tables import StageSpec
from assay.experiment.tables import EngineSpec
from assay.lab.check.all_checks import check_experiment
from assay.lab.monitor.sinks.sink_register import SINKS
from assay.models.gguf_file import ARCHITECTURES
from assay.models.source import parse_source, resolve
from assay.rl.presets import PRESETS
from assay.rollout.engines.register import TEXT_ENGINES
from tests.docs.pages import BLOCK, DOCS, blocks
from tests.models.folders import save_tiny_model

PAGE = "can-assay.md"
SOURCE = Path(assay.__file__).parent
ROW = re.compile(r"^\| (.+?) \| (yes|no|untested) \| (.+) \|$", re.MULTILINE)
TEXT = BLOCK.sub("", (DOCS / PAGE).read_text(encoding="utf-8"))
ANSWERS = {question: (answer, reason) for question, answer, reason in ROW.findall(TEXT)}


def imports(*modules: str) -> bool:
    """Whether any module of the project names one of these modules; what runs inside other tools
    is none of its own."""
    pattern = re.compile(rf"\b(?:{'|'.join(map(re.escape, modules))})\b")
    own = [file for file in SOURCE.rglob("*.py") if file.parent.name != "in_tool"]
    return any(pattern.search(file.read_text("utf-8")) for file in own)


def methods() -> set[str]:
    """The methods of stages."""
    kinds = get_args(get_args(StageSpec)[0])
    return {get_args(kind.model_fields["method"].annotation)[0] for kind in kinds}


def loads_gguf(folder: Path) -> bool:
    file = folder / "model.gguf"
    file.write_bytes(b"GGUF" + bytes(20))
    try:
        resolve(parse_source(f"path:{file}"))
    except InputError as error:
        # A reader of GGUF says what is wrong with this one; the folders' that it is no folder.
        return "folder" not in str(error)
    return True


CHECKED: dict[str, Callable[[Path], bool]] = {
    "train one model with several processes": lambda _: (
        "ranks" in EngineSpec.model_fields and imports("torch.distributed")
    ),
    "train on Apple's GPU (MPS), a TPU or an NPU": lambda _: imports(
        "torch.mps", "torch_xla", "torch_npu"
    ),
    "run on Windows": lambda _: not imports("import fcntl", "import resource"),
    "load a GGUF file": loads_gguf,
    "load code from a model's repository": lambda _: imports("trust_remote_code=True"),
    "train QLoRA, or load 4-bit weights": lambda _: imports("BitsAndBytesConfig", "Linear4bit"),
    "SFT": lambda _: "sft" in methods(),
    "rejection sampling fine-tuning": lambda _: "rft" in methods(),
    "GRPO, Dr. GRPO, DAPO, GSPO, CISPO, RLOO, REINFORCE++": lambda _: (
        {"grpo", "dr_grpo", "dapo", "gspo", "cispo", "rloo", "reinforce_pp"} <= set(PRESETS)
    ),
    "DPO": lambda _: "dpo" in methods(),
    "KTO, ORPO, SimPO": lambda _: bool({"kto", "orpo", "simpo"} & methods()),
    "PPO with a value model": lambda _: "ppo" in methods(),
    "train a reward model": lambda _: bool({"reward", "reward_model", "rm"} & methods()),
    "use a reward model as the reward": lambda _: imports("AutoModelForSequenceClassification"),
    "pretrain on plain text": lambda _: "pt" in methods(),
    "generate with vLLM while training": lambda _: (
        "vllm" in get_args(EngineSpec.model_fields["sample"].annotation)
    ),
    "measure a model behind vLLM or another server": lambda _: "endpoint" in TEXT_ENGINES,
    "write GGUF": lambda _: {"llama", "qwen2", "qwen3"} == set(ARCHITECTURES),
    "log to W&B, trackio, MLflow, TensorBoard": lambda _: (
        {"wandb", "trackio", "mlflow", "tensorboard"} <= set(SINKS)
    ),
    "be used from Python and notebooks": lambda _: callable(assay.run),
    "stream a data set": lambda _: imports("streaming=True"),
}


def test_every_row_of_the_page_has_one_of_three_answers_and_its_key_or_reason():
    rows = [line for line in TEXT.splitlines() if re.match(r"^\| (?!---|can Assay)", line)]
    assert len(rows) == len(ANSWERS) > 35
    assert all(reason.strip() for _, reason in ANSWERS.values())


@pytest.mark.parametrize("question", CHECKED)
def test_a_yes_and_a_no_agree_with_the_code(question, tmp_path):
    answer, _ = ANSWERS[question]
    assert answer == ("yes" if CHECKED[question](tmp_path) else "no")


KEYS = re.compile(r"`(\w+) = ")


def test_every_key_that_the_page_names_is_a_key_of_the_experiment_file():
    reference = (DOCS / "experiment.md").read_text(encoding="utf-8")
    named = {key for _, reason in ANSWERS.values() for key in KEYS.findall(reason)}
    assert len(named) > 5
    assert {key for key in named if f"- `{key}` (" not in reference} == set()


FUNCTION = """
def exact(prompts, completions, solution, **kwargs):
    answers = (completion[0]["content"].strip() for completion in completions)
    return [float(answer == right) for answer, right in zip(answers, solution)]
"""


def trl_rows(folder: Path) -> None:
    """Prompts as messages, with TRL's own column of the right answer."""
    rows = [
        {"prompt": [{"role": "user", "content": f"{n} + 1"}], "solution": str(n + 1)}
        for n in range(40)
    ]
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "exact.py").write_text(FUNCTION)


def swift_rows(folder: Path) -> None:
    messages = [
        [{"role": "user", "content": f"{n} + 1"}, {"role": "assistant", "content": str(n + 1)}]
        for n in range(40)
    ]
    lines = (json.dumps({"messages": each}) + "\n" for each in messages)
    (folder / "train.jsonl").write_text("".join(lines))


def verl_rows(folder: Path) -> None:
    """The columns that verl's `examples/data_preprocess/gsm8k.py` writes."""
    rows = [
        {
            "data_source": "openai/gsm8k",
            "prompt": [{"role": "user", "content": f"What is {n} + 1?"}],
            "ability": "math",
            "reward_model": {"style": "rule", "ground_truth": str(n + 1)},
            "extra_info": {"split": "train", "index": n},
        }
        for n in range(40)
    ]
    pq.write_table(pa.Table.from_pylist(rows), folder / "train.parquet")


RUNS = {"from-trl": trl_rows, "from-swift": swift_rows, "from-verl": verl_rows}


@pytest.mark.parametrize("name", RUNS)
def test_the_file_beside_another_tools_command_is_accepted(name, tmp_path):
    texts = {tomllib.loads(text)["name"]: text for text in blocks(PAGE, "toml")}
    assert texts.keys() == RUNS.keys()
    RUNS[name](tmp_path)
    save_tiny_model(tmp_path / "model")
    file = tmp_path / f"{name}.toml"
    file.write_text(texts[name].replace("hf:Qwen/Qwen3-0.6B", "path:model"))
    found = check_experiment(file, root=tmp_path)
    assert found.errors == ()
    assert Experiment.model_validate(tomllib.loads(file.read_text())).name == name
