"""An engine in this process, and how hand-overs to it go wrong."""

import copy
from typing import Any

import torch
from torch import nn

from assay.engines.handover import Columns, HandedOver
from assay.models.weight_files import State, logps_of
from assay.rl.policy import SampleKey, Sampling
from assay.rollout.engines.cpu.sampler import LocalSampler

FAULTS = ("keeps", "all but one layer", "stale cache")
BEHIND = {
    "keeps": ".",
    "all but one layer": ".layers.1.",
    "all but one tensor": ".layers.0.mlp.up_proj.",
    "all but the head": "lm_head.",
    "all but a norm": ".layers.1.input_layernorm.",
}
"""What stays behind, by a part of its names."""
COLD = 0.7
DRAWN: dict[str, dict[str, float]] = {
    "temperature x 0.95": {"temperature": 0.95},
    "top_p 0.9": {"top_p": 0.9},
    "top_k 50": {"top_k": 50},
    "drawn at 0.7 T, told at T": {"temperature": COLD},
    "end tokens not honoured": {},
    "one seed for all": {},
}
"""Faults of sampling, and what is set in place of what was asked for; temperatures are shares."""


class FakeEngine:
    """See `register.VllmEngine`; after the first hand-over it has the fault that is named."""

    def __init__(
        self,
        plain: nn.Module,
        compute: torch.dtype = torch.float32,
        fault: str = "",
        lies: bool = False,
    ):
        """Where it `lies`, weights that are read back are those it was given, and its prefix cache
        is empty."""
        self.owner: object = None
        self.held = HandedOver()
        self.lies = lies
        self.given: State = {}
        self.compute = compute
        self.fault = fault
        self.loads = 0
        self.model: Any = copy.deepcopy(plain).eval()
        self.model.config.tie_word_embeddings = False  # as vLLM is opened
        self.model.lm_head.weight = nn.Parameter(self.model.lm_head.weight.detach().clone())
        self.earlier = self.model

    def load(self, state: State) -> None:
        """Take over what the fault lets through."""
        self.loads += 1
        self.earlier = copy.deepcopy(self.model)
        self.given = state
        if self.loads > 1 and self.fault in BEHIND:
            behind = BEHIND[self.fault]
            state = {name: t for name, t in state.items() if behind not in name}
        mine = self.model.state_dict()
        with torch.no_grad():
            for name, tensor in state.items():
                mine[name].copy_(tensor)

    def read(self, columns: Columns) -> State:
        """Of its weights, rounded as an engine of this type holds them."""
        held = self.given if self.lies else self.model.state_dict()
        return {
            name: held[name].to(self.compute)[:, places] if places else held[name].to(self.compute)
            for name, places in columns.items()
        }

    def reused(self, prompt: list[int]) -> int:
        """The whole prompt, where the cache is stale."""
        stale = self.fault == "stale cache" and self.loads > 1 and not self.lies
        return len(prompt) if stale else 0

    def sleep(self) -> None:
        """It is small."""

    def sample(
        self, prompts: list[list[int]], seeds: list[int], ends: list[int], settings: dict[str, Any]
    ) -> list[tuple[list[int], list[float], bool]]:
        """With Assay's own engine, and the fault that it has."""
        warmth, others = settings["temperature"], dict(DRAWN.get(self.fault, {}))
        warmth *= others.pop("temperature", 1.0)
        sampling = Sampling(warmth, settings["max_tokens"], **others)  # type: ignore[arg-type]
        keys = [SampleKey(7 if "one seed" in self.fault else seed, "", 0) for seed in seeds]
        kept = frozenset[int]() if "end tokens" in self.fault else frozenset(ends)
        own = LocalSampler(self.model, kept, self.compute)
        turns = own.sample([tuple(prompt) for prompt in prompts], keys, sampling)
        told = [[*(turn.behaviour_logps or ())] for turn in turns]
        if "told at T" in self.fault:
            asked = prompts, [[*turn.actions] for turn in turns]
            told = self._scored(self.model, *asked, settings["temperature"])
        answers = zip(turns, told, strict=True)
        return [(list(t.actions), logps, t.ended == "stop") for t, logps in answers]

    def score(self, contexts: list[list[int]], actions: list[list[int]]) -> list[list[float]]:
        """With the weights that it has."""
        return self._scored(self.model, contexts, actions)

    def score_cached(
        self, contexts: list[list[int]], actions: list[list[int]]
    ) -> list[list[float]]:
        """The same, or from what earlier weights left behind."""
        model = self.earlier if self.fault == "stale cache" else self.model
        return [logps[-1:] for logps in self._scored(model, contexts, actions)]

    def _scored(
        self,
        model: nn.Module,
        contexts: list[list[int]],
        actions: list[list[int]],
        warmth: float = 1.0,
    ) -> list[list[float]]:
        with torch.autocast("cpu", torch.bfloat16, enabled=self.compute == torch.bfloat16):
            flat = iter(logps_of(model, contexts, actions, warmth).tolist())
        return [[next(flat) for _ in tail] for tail in actions]
