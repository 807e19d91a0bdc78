"""What the proof of sampling says of honest steps of SmolLM2 in bf16, and when it sees each fault.

    python -m benchmarks.sampling_proof own           Assay's bf16 sampler in the engine's place
    python -m benchmarks.sampling_proof vllm          vLLM (`assay engines add vllm`)
    python -m benchmarks.sampling_proof own --steps 200 --only honest

A step is 8 completions of 24 tokens, two of each of four prompts that change from step to step.
Faults are built into the engine itself, behind the real `ProvenSampler`: into the process of vLLM,
whose settings they change there. Each runs until it is seen, 30 steps at most. Honest steps go on
over what is found; several are sampled and scored at once, and judged apart.
"""

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from assay.engines import register
from assay.engines.handover import Columns, HandedOver, picked
from assay.engines.register import EngineOpening, ProvenSampler, close_all, opened
from assay.models.load import load_model
from assay.models.precision import choose_precision
from assay.models.weight_files import State, drawn_moments, logps_of, rounded
from assay.rl.policy import SampleKey, Sampling
from assay.rl.sampling_proof import NotAsTold, SamplingProof, drawn_sums
from assay.rollout.engines.cpu.sampler import LocalSampler
from benchmarks.driver import parser_of, say
from benchmarks.models import model_folder
from benchmarks.results import machine, save_result
from benchmarks.worker import Record

SUBJECT = "sampling_proof"
BF16 = torch.bfloat16
TOKENS, PROMPTS, EACH = 24, 4, 2
HONEST = "honest"
MOST = 30
"""Steps until which a fault is waited for."""
BLOCK = 20
"""Honest steps that are sampled at once."""
COLD = 0.7
FAULTS = (
    "temperature x 0.95",
    "top_p 0.9",
    "top_k 50",
    "end tokens not honoured",
    "one seed for all",
    "drawn at 0.7 T, told at T",
)
WORKER = Path(__file__).with_name("faulty_vllm_worker.py")
ASKED = (
    *("What is 17 + 25?", "Name three rivers.", "Why is the sky blue?", "Write a short poem."),
    *("What is a noun?", "Who wrote Faust?", "Give me a recipe.", "Explain gravity."),
    *("Is 7 a prime?", "Translate 'good morning' to French.", "What is the capital of Peru?"),
    *("Say hello.", "Tell me a joke.", "How do bees make honey?", "List four colours."),
    "Answer yes or no: is water wet?",
)


@dataclass
class OwnEngine:
    """Assay's sampler as an engine of somebody else's; see `register.VllmEngine`."""

    model: nn.Module
    fault: str = ""
    owner: object = None
    held: HandedOver = field(default_factory=HandedOver)
    state: State = field(default_factory=dict)

    def load(self, state: State) -> None:
        """It shares the module's weights."""
        self.state = state

    def read(self, columns: Columns) -> State:
        """Of what was handed over."""
        return {name: picked(self.state[name], places) for name, places in columns.items()}

    def reused(self, prompt: list[int]) -> int:
        """It has no prefix cache."""
        return 0

    def sleep(self) -> None:
        """It is small."""

    def sample(
        self, prompts: list[list[int]], seeds: list[int], ends: list[int], settings: dict[str, Any]
    ) -> list[tuple[list[int], list[float], bool]]:
        """With the fault that it has."""
        asked = Sampling(settings["temperature"], settings["max_tokens"])
        changes: Mapping[str, Sampling] = {
            "temperature x 0.95": replace(asked, temperature=0.95 * asked.temperature),
            "top_p 0.9": replace(asked, top_p=0.9),
            "top_k 50": replace(asked, top_k=50),
            "drawn at 0.7 T, told at T": replace(asked, temperature=COLD * asked.temperature),
        }
        keys = [SampleKey(0 if self.fault == "one seed for all" else n, "", 0) for n in seeds]
        kept = frozenset() if self.fault == "end tokens not honoured" else frozenset(ends)
        sampler = LocalSampler(self.model, kept, BF16)
        turns = sampler.sample([tuple(p) for p in prompts], keys, changes.get(self.fault, asked))
        if self.fault == "drawn at 0.7 T, told at T":
            told = self.score(prompts, [[*turn.actions] for turn in turns])
            turns = [replace(t, behaviour_logps=tuple(x)) for t, x in zip(turns, told, strict=True)]
        return [([*t.actions], [*(t.behaviour_logps or ())], t.ended == "stop") for t in turns]

    def score(self, contexts: list[list[int]], actions: list[list[int]]) -> list[list[float]]:
        """In bf16."""
        with torch.autocast("cpu", BF16):
            flat = iter(logps_of(self.model, contexts, actions).tolist())
        return [[next(flat) for _ in tail] for tail in actions]

    def score_cached(
        self, contexts: list[list[int]], actions: list[list[int]]
    ) -> list[list[float]]:
        """Of the last actions."""
        return [logps[-1:] for logps in self.score(contexts, actions)]


Start = Callable[[str], Callable[[], Any]]
"""Gives what opens an engine with a fault."""


def own(model: nn.Module, fault: str) -> Callable[[], Any]:
    """Assay's."""
    engine = OwnEngine(model, fault)
    return lambda: engine


def vllm(folder: Path, fault: str) -> Callable[[], Any]:
    """vLLM, in a process that has the fault."""
    file = Path(os.environ.setdefault("FAULT", tempfile.mkstemp()[1]))
    file.write_text(fault, encoding="utf-8")
    register.SCRIPT = WORKER
    return partial(opened, EngineOpening(str(folder), "bfloat16", "cpu"))


def contexts_of(tokenizer: Any) -> list[tuple[int, ...]]:
    """The prompts as token ids."""
    asked = [[{"role": "user", "content": text}] for text in ASKED]
    made = [tokenizer.apply_chat_template(each, add_generation_prompt=True) for each in asked]
    return [tuple(map(int, getattr(each, "input_ids", each))) for each in made]


def asked_in(step: int, count: int, seed: int) -> tuple[list[int], list[SampleKey]]:
    """The prompts of a step, by number, and the keys of its completions."""
    first = PROMPTS * step
    rows = [n % count for n in range(first, first + PROMPTS) for _ in range(EACH)]
    return rows, [SampleKey(seed, f"{step} {row}", n % EACH) for n, row in enumerate(rows)]


def honest(
    sampler: ProvenSampler, contexts: Sequence[tuple[int, ...]], steps: int, seed: int
) -> Iterator[Record]:
    """The figures of the honest steps so far, and the alarms among them."""
    proof, sampling = SamplingProof(), Sampling(max_tokens=TOKENS)
    lines, alarms = list[Record](), list[str]()
    for block in range(1, steps, BLOCK):
        asked = [asked_in(step, len(contexts), seed) for step in range(block, block + BLOCK)]
        rows = [row for each, _ in asked for row in each]
        keys = [key for _, each in asked for key in each]
        turns = sampler.sample([contexts[row] for row in rows], keys, sampling)
        prompts, actions = [[*contexts[row]] for row in rows], [[*turn.actions] for turn in turns]
        with rounded(sampler.module, BF16):
            moments = drawn_moments(sampler.module, prompts, actions, 1.0)
        ends = torch.tensor([0, *map(len, actions)]).cumsum(0).tolist()
        told_S = torch.tensor([x for t in turns for x in t.behaviour_logps or ()]).double().numpy()
        for first in range(0, len(turns), PROMPTS * EACH):
            mine = turns[first : first + PROMPTS * EACH]
            here = slice(ends[first], ends[first + len(mine)])
            logps_S, entropies_S, variances_S = (each_S[here].numpy() for each_S in moments)
            sums = drawn_sums(logps_S, entropies_S, variances_S, told_S[here])
            drawn = [(t.context, t.actions, sum(t.behaviour_logps or ())) for t in mine]
            found = proof.add(sums, drawn)
            lines.append(rounded_figures(found | {"tokens": float(len(told_S[here]))}))
            alarms += [f"step {len(lines)}: {proof.broken}"] if proof.broken else []
        say(f"    {len(lines):3} {lines[-1]} {alarms}")
        sums = {name: round(value, 5) for name, value in proof.run.items()}
        yield {"alarms": alarms, "largest": largest(lines), "run": sums, "steps": lines}


def rounded_figures(figures: Mapping[str, float]) -> dict[str, float]:
    """The figures of a step, short."""
    return {name: round(value, 4) for name, value in figures.items()}


def largest(lines: Sequence[Record]) -> dict[str, float]:
    """The largest size of each figure over the steps."""
    names = {name for line in lines for name in line}
    return {name: max(abs(line.get(name, 0.0)) for line in lines) for name in sorted(names)}


def watched(
    sampler: ProvenSampler, contexts: Sequence[tuple[int, ...]], steps: int, seed: int
) -> Iterator[Record]:
    """The figures of each step, and the step and the words of the failure, where there is one."""
    lines: list[Record] = []
    for step in range(1, steps + 1):
        rows, keys = asked_in(step, len(contexts), seed)
        sampler._unseen = True  # every step is scored as the first behind a hand-over
        seen = ""
        try:
            sampler.sample([contexts[row] for row in rows], keys, Sampling(max_tokens=TOKENS))
        except NotAsTold as failure:
            seen = str(failure)
        figures = {n.removeprefix("engine/"): v for n, v in sampler.measured.items()}
        kept = ("_z", "_z_last", "_z_run", "told_gap", "evidence", "gap_sampled")
        lines.append(rounded_figures({n: v for n, v in figures.items() if n.endswith(kept)}))
        say(f"    {step:3} {lines[-1]}")
        if seen:
            say(f"    {seen}")
            yield {"seen_at": step, "seen": seen, "steps": lines}
            return
    yield {"seen_at": None, "steps": lines}


def main() -> None:
    """Measure an engine and write the result."""
    parser = parser_of(__doc__)
    parser.add_argument("engine", choices=("own", "vllm"))
    parser.add_argument("--steps", type=int, default=200, help="honest ones")
    parser.add_argument("--only", nargs="*", default=[*FAULTS, HONEST])
    parser.add_argument("--seed", type=int, default=7)
    arguments = parser.parse_args()
    folder = model_folder("smollm2")
    loaded = load_model(folder, choose_precision("fp32", "cpu"))
    start: Start = {"own": partial(own, loaded.model), "vllm": partial(vllm, folder)}[
        arguments.engine
    ]
    contexts = contexts_of(loaded.tokenizer)
    for name in arguments.only:
        say(f"  {arguments.engine}: {name}")
        engine = start("" if name == HONEST else name)
        sampler = ProvenSampler(engine, loaded.model, loaded.end_tokens, BF16)
        measure, steps = (honest, arguments.steps) if name == HONEST else (watched, MOST)
        for found in measure(sampler, contexts, steps, arguments.seed):
            result = {"engine": arguments.engine, "what": name, "seed": arguments.seed, **found}
            place = "".join(c if c.isalnum() else "_" for c in name)
            save_result(SUBJECT, f"{arguments.engine}-{place}", {"machine": machine(), **result})
    close_all()


if __name__ == "__main__":
    main()
