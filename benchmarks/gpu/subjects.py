"""What is compared: small random models on CPU and device, a batch of turns, and whole folders.

Weights are drawn on the CPU and copied, so that both sides have the same. Nothing here measures.
"""

import copy
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel, Qwen3Config

from assay.data.episode import Episode, Reward, Turn
from assay.models.adapt import train_all, train_lora
from assay.models.lora import LoraOptions
from assay.models.precision import Precision, choose_precision
from assay.rl.packed import Packed
from assay.rollout.engines.plain_sampler import PlainSampler
from assay.rollout.policies.language import LanguagePolicy
from assay.train.likelihood import weighted_batch
from benchmarks.families import tiny_family
from benchmarks.gpu.rows import Setup
from benchmarks.memory import configs
from benchmarks.models import byte_tokenizer

DTYPES = ("fp32", "bf16")
PROMPTS, GROUP = 2, 4
FAULT = 2.0
"""By what the faulty weight is scaled."""
ENDS: dict[str, Any] = {"bos_token_id": None, "eos_token_id": 1, "pad_token_id": 0}
SHAPES = ("SmolLM2-135M", "Qwen3-0.6B", "Qwen3-1.7B")
TINY = "tiny"


@dataclass(frozen=True)
class Subject:
    """A model and what of it is trained."""

    family: str
    adapter: bool = False

    @property
    def name(self) -> str:
        """As the page has it."""
        return f"{self.family}, LoRA" if self.adapter else self.family


SUBJECTS = (
    Subject("llama"),
    Subject("llama", adapter=True),
    Subject("qwen3"),
    Subject("qwen3", adapter=True),
    Subject("gpt_neox"),
)
"""Two families of the packed path; GPT-NeoX takes the plain one."""
FEW = (SUBJECTS[0], SUBJECTS[3], SUBJECTS[4])
"""In the small form."""


def subjects_of(setup: Setup) -> tuple[Subject, ...]:
    """What is compared."""
    return FEW if setup.small else SUBJECTS


def random_model(family: str, small: bool) -> PreTrainedModel:
    """A model whose distributions over words have a shape, the same at every call."""
    if family == "gpt_neox":
        return tiny_family(family)
    torch.manual_seed(0)
    sizes = (2, 64, 2, 96, 512) if small else (4, 256, 4, 768, 4096)
    layers, hidden, heads, inner, words = sizes
    config = {"llama": LlamaConfig, "qwen3": Qwen3Config}[family](
        vocab_size=words,
        hidden_size=hidden,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads // 2,
        head_dim=hidden // heads,
        tie_word_embeddings=True,
        **ENDS,
    )
    model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(3.0)
    return model.eval()


def adapted(subject: Subject, small: bool) -> nn.Module:
    """The model on the CPU, made ready to train; an adapter's second matrix is not zero."""
    model = random_model(subject.family, small)
    if not subject.adapter:
        return train_all(model)[0]
    torch.manual_seed(1)
    module, _ = train_lora(model, LoraOptions(8, 16.0))
    with torch.no_grad():
        for name, weight in module.named_parameters():
            if "lora_B" in name:
                weight.normal_(std=0.01)
    return module


def on_device(module: nn.Module, setup: Setup) -> nn.Module:
    """A copy on the device, with the fault where one is asked for."""
    there = copy.deepcopy(module).to(setup.device)
    if setup.fault:
        matrices = [p for n, p in there.named_parameters() if p.dim() == 2 and "lora" not in n]
        with torch.no_grad():
            matrices[len(matrices) // 2].mul_(FAULT)
    return there


def device_policy(module: nn.Module, dtype: str, setup: Setup) -> LanguagePolicy:
    """What samples, scores and trains on the device."""
    precision = choose_precision(dtype, setup.device)  # type: ignore[arg-type]
    return LanguagePolicy(on_device(module, setup), precision, frozenset([1]))


def reference_policy(module: nn.Module) -> LanguagePolicy:
    """What is compared with: Transformers' own forward on the CPU, in fp64."""
    precision = Precision(torch.float64, torch.float64, "cpu", "the reference")
    return plainly(copy.deepcopy(module).double(), precision)


def rough_policy(module: nn.Module) -> LanguagePolicy:
    """The same in bf16, which shows how much rounding makes."""
    return plainly(copy.deepcopy(module), choose_precision("bf16", "cpu"))


def plainly(module: nn.Module, precision: Precision) -> LanguagePolicy:
    """A policy that scores and samples by Transformers' forward, whatever the family."""
    ends = frozenset([1])
    sampler = PlainSampler(module, ends, precision.compute)
    policy = LanguagePolicy(module, precision, ends, sampler=sampler)
    policy.plain = True
    return policy


def episodes(words: int) -> list[Episode]:
    """Groups of judged completions of different lengths behind arbitrary prompts."""
    draw = random.Random(0)

    def tokens(count: int) -> tuple[int, ...]:
        return tuple(draw.randrange(2, words) for _ in range(count))

    made = []
    for group in range(PROMPTS):
        prompt = tokens(40 - 11 * group)
        for member in range(GROUP):
            actions = tokens(6 + 5 * member)
            turn = Turn(prompt, actions, (True,) * len(actions))
            made.append(Episode(f"{group}#{member}", f"{group}", (turn,), Reward(draw.random())))
    return made


def batch(module: Any, policy: LanguagePolicy) -> Packed:
    """The episodes with weights of RCE, advantages, and log-probs of a rollout and a reference
    that are near the policy's own."""
    words = module.get_input_embeddings().num_embeddings
    packed = weighted_batch(episodes(words), tau=0.5, temperature=1.0)
    with torch.no_grad():
        logps_S = policy.score(packed).logps_S.float()
    noise = torch.Generator().manual_seed(0)

    def near() -> torch.Tensor:
        return logps_S + 0.1 * torch.randn(len(logps_S), generator=noise)

    advantage_S = torch.randn(len(logps_S), generator=noise)
    return replace(
        packed, behaviour_S=near(), old_S=near(), reference_S=near(), advantage_S=advantage_S
    )


@contextmanager
def few_threads(setup: Setup) -> Iterator[None]:
    """Inside, a device that is this CPU computes in one thread, unlike the reference."""
    threads = torch.get_num_threads()
    if setup.device == "cpu":
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def whole_folder(name: str, parent: Path, setup: Setup) -> Path:
    """A model's folder: the weights of SmolLM2 where they are at hand, else random ones in bf16."""
    if name == SHAPES[0] and setup.smollm2:
        return Path(setup.smollm2)
    folder = parent / name
    if not folder.exists():
        shapes: Mapping[str, Any] = configs()
        config = shapes[name] if name in shapes else random_model("qwen3", small=True).config
        for key, value in ENDS.items():
            setattr(config, key, value)
        torch.manual_seed(0)
        with torch.device(setup.device):
            model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        model.save_pretrained(folder)
        byte_tokenizer().save_pretrained(folder)
    return folder
