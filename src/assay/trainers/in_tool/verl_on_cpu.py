"""Lets verl 0.9.1 train on a machine without a GPU, as an external module of its own.

Part of a folder that `assay export --to verl` wrote; run.sh loads it where there is no GPU. Brings
a platform, and a rollout that samples with Transformers in a process of its own. Verl's source is
not changed; of torch two functions are wrapped: verl names the backend of CPUs twice, and FSDP pins
memory.
"""

import asyncio
import types
from contextlib import nullcontext

import ray
import torch
from peft import LoraConfig, get_peft_model, set_peft_model_state_dict
from transformers import AutoModelForCausalLM
from verl.plugin.platform import PlatformBase, PlatformRegistry
from verl.workers.rollout import base
from verl.workers.rollout.base import BaseRollout
from verl.workers.rollout.replica import RolloutReplica, RolloutReplicaRegistry, TokenOutput

WAIT_SECONDS = 0.05
"""How long the first request of a batch waits for others."""
ENDPOINT = "assay_cpu_rollout_{rank}"


class Device(types.ModuleType):
    """`torch.cpu`, with the memory of a device that has none of its own."""

    def get_device_name(self, *_):
        """By which verl finds how fast a device is."""
        return "CPU"

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        if hasattr(torch.cpu, name):
            return getattr(torch.cpu, name)
        if "memory" in name or "mem" in name:
            return (lambda *_: (0, 0)) if name == "mem_get_info" else (lambda *_, **__: 0)
        return lambda *_, **__: None


VALUES = {
    "is_available": True,
    "is_platform_available": True,
    "current_device": torch.device("cpu"),
    "device_count": 1,
    "get_device_capability": (None, None),
    "communication_backend_name": "gloo",
    "visible_devices_envvar": "CUDA_VISIBLE_DEVICES",
    # verl knows no other resource; run.sh gives Ray logical GPUs.
    "ray_resource_name": "GPU",
    "ray_noset_envvars": ["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"],
    "is_ipc_supported": False,
    "nvtx_range": nullcontext(),
}
"""What the methods of a platform answer here; the others do nothing."""


def answering(value):
    """A method that gives this value, whatever it is asked."""
    return lambda self, *_, **__: value


def platform():
    """A platform whose devices are logical."""
    names = PlatformBase.__abstractmethods__
    methods = {name: answering(VALUES.get(name)) for name in names}
    methods |= {"device_name": "cpu", "vendor_name": "cpu", "device_module": Device("cpu")}
    seeds = {n: lambda self, seed: torch.manual_seed(seed) for n in names if "manual_seed" in n}
    return type("Cpu", (PlatformBase,), methods | seeds)


PlatformRegistry.register(platform="cpu")(platform())


join = torch.distributed.init_process_group


def join_once(backend=None, *args, **options):
    """`init_process_group`, given each backend once."""
    if isinstance(backend, str):
        backend = ",".join(dict.fromkeys(backend.split(",")))
    return join(backend, *args, **options)


torch.distributed.init_process_group = join_once
# FSDP pins the weights of the reference, which only a machine with an accelerator can.
torch.Tensor.pin_memory = lambda self, *_, **__: self


class Server:
    """Samples with Transformers; requests that come together are one batch."""

    def __init__(self, path, seed, longest):
        torch.manual_seed(seed)
        self.longest, self.steps = longest, 0
        self.model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
        self.waiting = []

    async def update_weights(self, weights, steps, adapter):
        """Take the trainer's weights after so many steps, or those of its adapter, given peft's
        configuration of it; all of them have to be there, and no others."""
        self.steps = steps
        own = {name: torch.as_tensor(value).float() for name, value in weights.items()}
        if adapter is None:
            own = {name.replace(".base_layer.", "."): value for name, value in own.items()}
            loaded = self.model.load_state_dict(own, strict=False)
        else:
            if not hasattr(self.model, "peft_config"):
                self.model = get_peft_model(self.model, LoraConfig(**adapter)).eval()
            loaded = set_peft_model_state_dict(self.model, own)
        kept = "lora_" if adapter else ""
        missing = [n for n in loaded.missing_keys if kept in n and n != "lm_head.weight"]
        if missing or loaded.unexpected_keys:
            what = f"no {missing[0]}" if missing else loaded.unexpected_keys[0]
            raise RuntimeError(f"the trainer sent {what}")

    async def generate(self, prompt_ids, sampling_params, request_id, **_):
        """An answer in tokens with their log-probabilities."""
        answer = asyncio.get_running_loop().create_future()
        self.waiting.append((list(prompt_ids), dict(sampling_params), answer))
        if len(self.waiting) == 1:
            await asyncio.sleep(WAIT_SECONDS)
            batch, self.waiting = self.waiting, []
            try:
                for (_, _, each), made in zip(batch, self.sampled(batch), strict=True):
                    each.set_result(made)
            except Exception as error:
                for _, _, each in batch:
                    if not each.done():
                        each.set_exception(error)
        return await answer

    @torch.no_grad()
    def sampled(self, batch):
        """The answers of a batch, whose settings are those of its first request."""
        ends = self.model.generation_config.eos_token_id
        ends = ends if isinstance(ends, list) else [ends]
        settings = batch[0][1]
        longest = max(len(prompt) for prompt, _, _ in batch)
        ids = torch.tensor([[ends[0]] * (longest - len(p)) + p for p, _, _ in batch])
        mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p, _, _ in batch])
        most = settings.get("max_tokens") or settings.get("max_new_tokens") or self.longest
        made = self.model.generate(
            input_ids=ids,
            attention_mask=mask,
            do_sample=settings.get("temperature", 1.0) > 0,
            temperature=settings.get("temperature", 1.0) or 1.0,
            top_p=settings.get("top_p", 1.0),
            top_k=max(settings.get("top_k", 0), 0),
            max_new_tokens=most,
            pad_token_id=ends[0],
            return_dict_in_generate=True,
            output_scores=True,
        )
        scores = torch.stack(made.scores, dim=1).log_softmax(-1)
        answers = made.sequences[:, longest:]
        logps = scores.gather(-1, answers[..., None])[..., 0]
        for tokens, own in zip(answers.tolist(), logps.tolist(), strict=True):
            end = next((n + 1 for n, token in enumerate(tokens) if token in ends), len(tokens))
            yield TokenOutput(
                token_ids=tokens[:end],
                log_probs=own[:end],
                stop_reason="completed",
                extra_fields={"global_steps": self.steps},
            )

    async def nothing(self, *_, **__):
        """What an engine on a GPU does with its memory."""

    wake_up = sleep = clear_kv_cache = release_kv_cache = resume_kv_cache = nothing
    abort_all_requests = resume_generation = start_profile = stop_profile = nothing


class Replica(RolloutReplica):
    """One server for the trainer's weights."""

    async def launch_servers(self):
        """Start it."""
        name = ENDPOINT.format(rank=self.replica_rank)
        server = ray.remote(Server).options(name=name, max_concurrency=1000, num_cpus=0)
        actor = server.remote(self.model_config.path, self.config.seed, self.config.response_length)
        self.servers = [actor]
        self._server_handle, self._server_address = actor, name


class WeightSender(BaseRollout):
    """Sends the trainer's weights to the server."""

    def __init__(self, config, model_config, device_mesh, replica_rank=0, **options):
        super().__init__(config, model_config, device_mesh)
        self.replica_rank = max(replica_rank, 0)

    async def resume(self, tags):
        """Nothing: the server holds its weights."""

    async def release(self):
        """Nothing: the server keeps its weights."""

    async def update_weights(
        self, weights, global_steps=None, peft_config=None, base_sync_done=True, **_
    ):
        """Send all weights, whole; of a model with an adapter first the base, then the adapter."""
        whole = ((n, v.full_tensor() if hasattr(v, "full_tensor") else v) for n, v in weights)
        arrays = {name: value.detach().float().cpu().numpy() for name, value in whole}
        server = ray.get_actor(ENDPOINT.format(rank=self.replica_rank))
        adapter = peft_config if base_sync_done else None
        await server.update_weights.remote(arrays, global_steps or 0, adapter)


RolloutReplicaRegistry.register("hf", lambda: Replica)
base._ROLLOUT_REGISTRY["hf", "async"] = f"{__name__}.WeightSender"
