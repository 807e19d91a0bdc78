"""Samples and scores with vLLM for the process that started it. Run in vLLM's environment, without
Assay.

Answers one JSON object a line on what was its standard output with one line on its standard input:
`{"do": NAME, ...}` with `{"answer": ...}` or `{"error": TEXT}`. Libraries print to standard error.
Ends with its input, and with the process that started it however that ends.

The prefix cache is emptied after scores too, so that what is sampled does not depend on them.
"""

import ctypes
import json
import os
import select
import shutil
import signal
import sys
from contextlib import suppress

PR_SET_PDEATHSIG = 1
STEP_TOKENS = 1 << 18
"""Tokens of one step on a CPU: more than any model reads at once."""


class Engine:
    """One model in vLLM, whose weights are replaced again and again."""

    def __init__(self, llm):
        self.llm = llm

    def load(self, folder):
        """Take over the whole weights of a folder."""
        self.llm.collective_rpc("reload_weights", kwargs={"weights_path": folder})
        self._forget()

    def receive(self, update):
        """Take over whole weights by vLLM's own weight transfer, on CUDA."""
        self.llm.start_weight_update()
        self.llm.update_weights({"update_info": update})
        self.llm.finish_weight_update()
        self._forget()

    def read(self, columns, file):
        """Write columns of matrices, and whole vectors, into a safetensors file; what this model
        has under no such name is left out."""
        self.llm.collective_rpc(write_columns, args=(columns, file))

    def reused(self, prompt):
        """How many tokens of a prompt the prefix cache holds."""
        from vllm import SamplingParams

        (result,) = self._run([prompt], SamplingParams(max_tokens=1, detokenize=False))
        self._forget()
        return result.num_cached_tokens or 0

    def sleep(self):
        """Give weights and cache back; awake, all weights must be handed over."""
        self.llm.sleep(level=2)

    def wake(self, part):
        """Take memory again, for `weights`, which must come before anything is asked, or for the
        `kv_cache`."""
        self.llm.wake_up(tags=[part])

    def _forget(self):
        if not self.llm.reset_prefix_cache():
            raise RuntimeError("the prefix cache was not emptied")

    def sample(self, prompts, seeds, ends, settings):
        """Token ids, their log-probs and whether an end or a stop string was met, of each."""
        from vllm import SamplingParams

        common = {**settings, "logprobs": 0, "stop_token_ids": ends, "ignore_eos": True}
        common |= {"detokenize": bool(settings.get("stop")), "skip_special_tokens": False}
        each = [SamplingParams(**common, seed=seed) for seed in seeds]
        outputs = [result.outputs[0] for result in self._run(prompts, each)]
        return [
            [
                list(out.token_ids),
                [
                    place[token].logprob
                    for token, place in zip(out.token_ids, out.logprobs, strict=True)
                ],
                out.finish_reason == "stop",
            ]
            for out in outputs
        ]

    def score(self, contexts, actions):
        """Log-probs of each sequence's actions, in one forward that reads no cache."""
        from vllm import SamplingParams

        whole = [context + tail for context, tail in zip(contexts, actions, strict=True)]
        params = SamplingParams(max_tokens=1, prompt_logprobs=0, detokenize=False)
        logps = []
        for result, context, tail in zip(self._run(whole, params), contexts, actions, strict=True):
            places = result.prompt_logprobs[len(context) :]
            logps.append([place[token].logprob for token, place in zip(tail, places, strict=True)])
        self._forget()
        return logps

    def score_cached(self, contexts, actions):
        """The log-prob of each sequence's last action, what comes before it read from the cache."""
        from vllm import SamplingParams

        before = [context + tail[:-1] for context, tail in zip(contexts, actions, strict=True)]
        common = {"max_tokens": 1, "logprobs": 1, "detokenize": False}
        each = [SamplingParams(**common, logprob_token_ids=[tail[-1]]) for tail in actions]
        results = self._run(before, each)
        self._forget()
        return [
            [result.outputs[0].logprobs[0][tail[-1]].logprob]
            for result, tail in zip(results, actions, strict=True)
        ]

    def _run(self, prompts, params):
        inputs = [{"prompt_token_ids": prompt} for prompt in prompts]
        return self.llm.generate(inputs, params, use_tqdm=False)


def read_files(worker):
    """Let a worker that was opened without weights read files of them."""
    worker.vllm_config.load_config.load_format = "auto"


def write_columns(worker, columns, file):
    """See `Engine.read`."""
    from safetensors.torch import save_file

    model = worker.model_runner.get_model()
    modules = dict(model.named_modules())
    tensors = {}
    for name, places in columns.items():
        part = held(model, modules, name)
        if part is not None:
            values = values_of(*part, places)
            tensors[name] = values.to("cpu").contiguous()
    save_file(tensors, file)


def held(model, modules, name):
    """The module that holds a weight of this name, the weight's name there, and its rows, where it
    is a part of several that are one; None where this model has no such module."""
    from dataclasses import replace

    mapper = getattr(model, "hf_to_vllm_mapper", None)
    mapped = replace(mapper, orig_to_new_stacked={}).map_name(name) if mapper else name
    place, _, kind = (mapped or "").rpartition(".")
    if place in modules:
        return (modules[place], kind, slice(None)) if hasattr(modules[place], kind) else None
    above, _, part = place.rpartition(".")
    for fused, parts in getattr(model, "packed_modules_mapping", {}).items():
        module = modules.get(f"{above}.{fused}")
        if part in parts and module is not None:
            sizes = module.output_partition_sizes
            first = sum(sizes[: parts.index(part)])
            return module, kind, slice(first, first + sizes[parts.index(part)])
    return None


def values_of(module, kind, rows, places):
    """The columns at `places` of a matrix, or a vector.

    Where a kernel packs the matrix, products with unit vectors give them bit for bit.
    """
    import torch
    from vllm.model_executor.layers.vocab_parallel_embedding import (
        ParallelLMHead,
        VocabParallelEmbedding,
    )

    parameter = getattr(module, kind)
    looked_up = isinstance(module, VocabParallelEmbedding) and not isinstance(
        module, ParallelLMHead
    )
    if not places or looked_up or not hasattr(module, "cpu_linear"):
        return parameter[rows][:, places] if places else parameter[rows]
    width = getattr(module, "input_size_per_partition", None) or module.embedding_dim
    units = torch.zeros(len(places), width, dtype=parameter.dtype)
    units[range(len(places)), places] = 1
    return module.quant_method.apply(module, units, None)[:, rows].T


def opened(folder, dtype, device, memory_gib):
    """An engine on the model in a folder."""
    from vllm import LLM

    options = {"model": folder, "dtype": dtype, "enforce_eager": device == "cpu"}
    options |= {"enable_prefix_caching": True, "logprobs_mode": "processed_logprobs"}
    options |= {"max_model_len": -1, "disable_log_stats": True, "generation_config": "vllm"}
    if device == "cpu":
        options |= {"kv_cache_memory_bytes": int(memory_gib * 2**30), "block_size": 32}
        # A prompt that is computed in parts needs generators that are set back, which those of CPUs
        # cannot be.
        options |= {"enable_chunked_prefill": False, "max_num_batched_tokens": STEP_TOKENS}
    else:
        from vllm.config import WeightTransferConfig

        options |= {"gpu_memory_utilization": 0.4, "enable_sleep_mode": True}
        options["weight_transfer_config"] = WeightTransferConfig(backend="ipc")
    # All weights come with the first hand-over. A head that is tied to the embedding would stay as
    # it was first loaded: vLLM's CPU layers pack it then, and a reload passes it by.
    options |= {"load_format": "dummy", "hf_overrides": {"tie_word_embeddings": False}}
    llm = LLM(**options)
    llm.collective_rpc(read_files)
    if device != "cpu":
        llm.init_weight_transfer_engine({"init_info": {"packed": False}})
    return Engine(llm)


def serve(requests, answers):
    """Answer until the requests end."""
    engine = None
    for line in requests:
        request = json.loads(line)
        name = request.pop("do")
        try:
            if name == "open":
                engine = opened(**request)
                answer = {}
            else:
                answer = getattr(engine, name)(**request)
            reply = {"answer": answer}
        except Exception as error:  # handed to the process that asked, which stops the run
            reply = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(reply) + "\n")
        answers.flush()


def clean_after(parent, folder):
    """Remove the folder when the process that started this one ends, and end this one before.

    By another small process, since none of the two may be there to do it.
    """
    starter, worker = os.pidfd_open(parent), os.pidfd_open(os.getpid())
    if os.fork():
        return
    os.setsid()
    os.closerange(0, 2)  # the pipes end with the worker
    ended(starter)
    with suppress(ProcessLookupError):  # the kernel ended it
        signal.pidfd_send_signal(worker, signal.SIGKILL)
    ended(worker)
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)


def ended(process):
    """Wait for the end of a process."""
    watched = select.poll()
    watched.register(process, select.POLLIN)
    watched.poll()


if __name__ == "__main__":
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(sys.argv[1]):
        sys.exit("the process that started this one is gone")
    clean_after(int(sys.argv[1]), sys.argv[2])
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    serve(sys.stdin, channel)
    os._exit(0)
