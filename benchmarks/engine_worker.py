"""One sampling engine in a process of its own, as `rollout` drives it.

A request holds `prompts` (token ids), `group` (completions of each), `tokens` (exactly so many in
every completion), `seed`, and whether vLLM returns log-probs (`logps`). The answer holds
`completions`, those of a prompt together, and the seconds of the sampling call alone. Each engine
has an environment of its own, so it is imported where it is made.
"""

import ctypes
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.worker import Meter, Record, open_channel, versions

Completions = list[list[int]]
Sample = Callable[[Record], Completions]
DTYPES = {"fp32": "float32", "bf16": "bfloat16"}


def assay(model: str, dtype: str, threads: int, device: str = "cpu") -> Sample:
    """Assay's sampler, log-probs included; nothing ends a completion but its length."""
    import torch

    from assay.models.load import load_model
    from assay.models.precision import choose_precision
    from assay.rl.policy import SampleKey, Sampling
    from assay.rollout.policies.language import LanguagePolicy

    torch.set_num_threads(threads)
    precision = choose_precision(dtype, device)  # type: ignore[arg-type]
    policy = LanguagePolicy(load_model(Path(model), precision).model, precision, frozenset())

    def sample(request: Record) -> Completions:
        contexts, keys = [], []
        for row, prompt in enumerate(map(tuple, request["prompts"])):
            contexts += [prompt] * request["group"]
            keys += [SampleKey(request["seed"], str(row), g) for g in range(request["group"])]
        sampling = Sampling(1.0, request["tokens"])
        turns = policy.sample(contexts, keys, sampling)
        return [list(turn.actions) for turn in turns]

    return sample


def generate(model: str, dtype: str, threads: int) -> Sample:
    """Transformers' `model.generate` on all prompts at once, with its default attention (SDPA)."""
    import torch
    from transformers import AutoModelForCausalLM, GenerationConfig

    torch.set_num_threads(threads)
    loaded: Any = AutoModelForCausalLM.from_pretrained(model, dtype=getattr(torch, DTYPES[dtype]))
    # Its end tokens would override those of a request.
    loaded.generation_config = GenerationConfig()
    loaded.eval()

    def sample(request: Record) -> Completions:
        torch.manual_seed(request["seed"])
        prompts = torch.tensor(request["prompts"])
        settings = GenerationConfig(
            do_sample=True,
            temperature=1.0,
            top_k=0,
            top_p=1.0,
            num_return_sequences=request["group"],
            max_new_tokens=request["tokens"],
            pad_token_id=0,
        )
        mask = torch.ones_like(prompts)
        answers = loaded.generate(prompts, attention_mask=mask, generation_config=settings)
        return answers[:, prompts.shape[1] :].tolist()

    return sample


def vllm(model: str, dtype: str, threads: int, adapter: str | None = None) -> Sample:
    """vLLM in this process, its prefix cache on; with the drawn tokens' log-probs if asked, and
    with a LoRA adapter in a folder if there is one."""
    os.environ |= {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_KVCACHE_SPACE": "4",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
    }
    import torch
    from vllm import LLM, SamplingParams  # type: ignore[import-not-found]
    from vllm.lora.request import LoRARequest  # type: ignore[import-not-found]

    apart = LoRARequest("adapter", 1, adapter) if adapter else None
    engine = LLM(
        model,
        dtype=DTYPES[dtype],
        enforce_eager=True,
        enable_prefix_caching=True,
        max_num_seqs=256,
        max_model_len=4096,
        disable_log_stats=True,
        **({"enable_lora": True, "max_lora_rank": 16} if adapter else {}),
    )
    torch.set_num_threads(threads)

    def sample(request: Record) -> Completions:
        settings = SamplingParams(
            n=request["group"],
            temperature=1.0,
            max_tokens=request["tokens"],
            ignore_eos=True,
            seed=None,
            logprobs=0 if request["logps"] else None,
            detokenize=False,
        )
        prompts = [{"prompt_token_ids": prompt} for prompt in request["prompts"]]
        answers = engine.generate(prompts, settings, use_tqdm=False, lora_request=apart)
        return [list(output.token_ids) for answer in answers for output in answer.outputs]

    return sample


UNIFIED, SEPARATE = "one buffer", "a buffer per sequence"
PAGE = 256
"""Cells of a sequence come in this many."""


Shape = tuple[int, int, int, int]
"""Prompts, completions of each, tokens of a prompt, tokens of a completion."""


class LlamaContext:
    """A llama.cpp context that fits requests of one shape: one decode a step for all sequences.

    Each prompt is prefilled once and its cells are handed to the other sequences of its group. The
    library `c` is llama.cpp's C interface.
    """

    def __init__(self, c: Any, model: Any, shape: Shape, threads: int, kind: str):
        prompts, group, length, tokens = shape
        self.c, self.group, self.rows = c, group, prompts * group
        if self.rows > c.llama_max_parallel_sequences():
            raise ValueError(f"{self.rows} sequences; llama.cpp decodes at most 256 together")
        settings = c.llama_context_default_params()
        settings.n_seq_max = self.rows
        settings.kv_unified = kind == UNIFIED
        cells = prompts * length + self.rows * tokens
        pages = -(-(cells if kind == UNIFIED else length + tokens) // PAGE)
        settings.n_ctx = pages * PAGE * (1 if kind == UNIFIED else self.rows)
        settings.n_batch = max(prompts * length, self.rows)
        settings.n_threads = settings.n_threads_batch = threads
        settings.no_perf = True
        self.context = c.llama_init_from_model(model, settings)
        self.memory = c.llama_get_memory(self.context)
        self.batch = c.llama_batch_init(settings.n_batch, 0, 1)

    def close(self) -> None:
        """Give the memory back."""
        self.c.llama_batch_free(self.batch)
        self.c.llama_free(self.context)

    def decode(self, entries: Sequence[tuple[int, int, int, bool]]) -> None:
        """Run (token, position, sequence, whether logits are wanted) through the model."""
        batch = self.batch
        batch.n_tokens = len(entries)
        for n, (token, position, sequence, wanted) in enumerate(entries):
            batch.token[n], batch.pos[n], batch.logits[n] = token, position, wanted
            batch.n_seq_id[n], batch.seq_id[n][0] = 1, sequence
        status = self.c.llama_decode(self.context, batch)
        if status:
            raise RuntimeError(f"llama_decode returned {status}")

    def sample(self, request: Record) -> Completions:
        """Completions drawn by llama.cpp's own samplers, one row after the other."""
        c, prompts, tokens = self.c, request["prompts"], request["tokens"]
        sampler = c.llama_sampler_chain_init(c.llama_sampler_chain_default_params())
        c.llama_sampler_chain_add(sampler, c.llama_sampler_init_dist(request["seed"]))
        c.llama_memory_clear(self.memory, False)
        length, ends = len(prompts[0]), self.prefill(prompts)
        drawn = [[c.llama_sampler_sample(sampler, self.context, end)] for end in ends]
        for position in range(length, length + tokens - 1):
            self.decode([(row[-1], position, n, True) for n, row in enumerate(drawn)])
            for n, row in enumerate(drawn):
                row.append(c.llama_sampler_sample(sampler, self.context, n))
        c.llama_sampler_free(sampler)
        return drawn

    def prefill(self, prompts: Sequence[Sequence[int]]) -> list[int]:
        """Read each prompt once; for every sequence the place of its logits in the batch."""
        last = len(prompts[0]) - 1
        self.decode(
            [
                (token, place, which * self.group, place == last)
                for which, prompt in enumerate(prompts)
                for place, token in enumerate(prompt)
            ]
        )
        for first in range(0, self.rows, self.group):
            for sequence in range(first + 1, first + self.group):
                self.c.llama_memory_seq_cp(self.memory, first, sequence, -1, -1)
        return [row // self.group * (last + 1) + last for row in range(self.rows)]


def llama(model: str, dtype: str, threads: int) -> Sample:
    """llama.cpp on a GGUF file, with the layout of its cache that is faster for the shape."""
    import llama_cpp as c  # type: ignore[import-not-found]

    silent = c.llama_log_callback(lambda *_: None)
    c.llama_log_set(silent, ctypes.c_void_p(0))
    c.llama_backend_init()
    loaded = c.llama_model_load_from_file(model.encode(), c.llama_model_default_params())
    if not loaded:
        raise RuntimeError(f"llama.cpp does not load {model}")
    chosen: dict[Shape, LlamaContext] = {}

    def sample(request: Record, _keep: Any = silent) -> Completions:
        prompts = request["prompts"]
        shape = len(prompts), request["group"], len(prompts[0]), request["tokens"]
        if shape not in chosen:
            for old in chosen.values():
                old.close()
            chosen.clear()
            both = [LlamaContext(c, loaded, shape, threads, kind) for kind in (UNIFIED, SEPARATE)]
            chosen[shape], slower = sorted(
                both, key=lambda context: second_seconds(context, request)
            )
            slower.close()
        return chosen[shape].sample(request)

    return sample


def second_seconds(context: LlamaContext, request: Record) -> float:
    """CPU-seconds of serving a request for the second time."""
    context.sample(request)
    start = time.process_time()
    context.sample(request)
    return time.process_time() - start


ENGINES: dict[str, tuple[Callable[..., Sample], tuple[str, ...]]] = {
    "assay": (assay, ("torch", "transformers")),
    "generate": (generate, ("torch", "transformers")),
    "vllm": (vllm, ("torch", "transformers", "vllm-cpu")),
    "llama": (llama, ("llama-cpp-python",)),
}
"""How each engine is made, and the packages whose versions it is named by."""


class Side:
    """The engine under command."""

    def __init__(self, engine: Sample):
        self.engine = engine

    def sample(self, **request: Any) -> Record:
        """Serve one request."""
        meter = Meter.start()
        completions = self.engine(request)
        return {"cpu": meter.cpu, "wall": meter.wall, "completions": completions}


def main() -> None:
    """Make the engine, then serve requests until the driver closes."""
    channel, settings = open_channel()
    make, packages = ENGINES[settings["engine"]]
    more = {name: settings[name] for name in ("adapter", "device") if name in settings}
    engine = make(settings["model"], settings["dtype"], settings["threads"], **more)
    channel.send(versions=versions(*packages))
    channel.serve(Side(engine))


if __name__ == "__main__":
    main()
