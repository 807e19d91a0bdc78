"""Assay's side of every benchmark but sampling: one policy and optimizer, driven a step at a time.

A step is what `assay.train.loop` does: `collect` (for GRPO: laying the changed weights out for the
sampler, sampling, rewards and advantages, counted as generation; for SFT: packing the next
documents) and `update` (scoring, loss, backward, clipping and the optimizer's step). Records and
checkpoints are left out, as on TRL's side.

GRPO's settings equal TRL's `loss_type="dapo"` with `scale_rewards="group"` and its default clip:
token mean over the whole batch, advantages divided by the deviation plus 1e-4, no KL.
"""

from benchmarks import worker
from benchmarks.worker import Meter, Record

CHANNEL, SETTINGS = worker.open_channel()

import random  # noqa: E402 after the channel: libraries may print
from collections.abc import Sequence  # noqa: E402
from contextlib import nullcontext  # noqa: E402
from functools import partial  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import torch  # noqa: E402
from peft import PeftModel  # noqa: E402

from assay.data.episode import Completion, Episode, Reward, Turn, tokens_of  # noqa: E402
from assay.data.row import Message, Row  # noqa: E402
from assay.engines.environments import environment_for, survey  # noqa: E402
from assay.engines.register import (  # noqa: E402
    EngineOpening,
    ProvenSampler,
    opened,
)
from assay.experiment.stage_tables import GrpoStage  # noqa: E402
from assay.models.adapt import save_activations, train_all, train_lora  # noqa: E402
from assay.models.load import load_model  # noqa: E402
from assay.models.lora import LoraOptions  # noqa: E402
from assay.models.precision import Precision, choose_precision  # noqa: E402
from assay.rl.aggregation import token_weights  # noqa: E402
from assay.rl.objectives import GrpoObjective, Objective  # noqa: E402
from assay.rl.packed import Packed, pack  # noqa: E402
from assay.rl.policy import Sampling  # noqa: E402
from assay.rollout.engines.plain_sampler import PlainSampler  # noqa: E402
from assay.rollout.engines.register import Sampler  # noqa: E402
from assay.rollout.policies.language import LanguagePolicy  # noqa: E402
from assay.train.checkpoint import Batch, Journalled, Place  # noqa: E402
from assay.train.grpo import Grpo  # noqa: E402
from assay.train.likelihood import NLL, Sft, likelihood_batch  # noqa: E402
from assay.train.loop import LoopSettings  # noqa: E402
from assay.train.pair_choice import GroupChoice  # noqa: E402
from assay.train.sampled_groups import PromptStream, SingleTurn  # noqa: E402
from assay.train.update import (  # noqa: E402
    make_optimizer,
    micro_batches,
    side_by_side,
    update,
)
from benchmarks import shapes  # noqa: E402
from benchmarks.shapes import Document, GrpoCell, SftCell  # noqa: E402

DEVICE: str = SETTINGS.get("device", "cpu")
VLLM = environment_for("vllm")
IMPORTS = worker.resident()
"""Bytes that the imports alone take."""


class NoRecords:
    """A journal of a stage that was never interrupted."""

    def inside(self, part: str, done: int, total: int) -> None:
        """Kept nowhere."""

    def recorded_rewards(self, step: int) -> dict[str, Journalled]:
        """None."""
        return {}


def sampler_of(module: Any, ends: frozenset[int], precision: Precision) -> Sampler | None:
    """vLLM or the plain engine where the driver says so; else what the model takes."""
    kind = SETTINGS.get("sampler")
    if kind == "plain":
        return PlainSampler(module, ends, precision.compute)
    if kind != "vllm":
        return None
    start = partial(opened, opening_of(module, precision))
    return ProvenSampler(start, module, ends, type_for(module, precision))


def type_for(module: Any, precision: Precision) -> torch.dtype:
    """The type of vLLM's weights: merged into bf16, an adapter's changes would be rounded away."""
    return precision.master if isinstance(module, PeftModel) else precision.compute


def opening_of(module: Any, precision: Precision) -> EngineOpening:
    """What vLLM is opened with."""
    dtype = str(type_for(module, precision)).removeprefix("torch.")
    return EngineOpening(SETTINGS["model"], dtype, DEVICE)


class Side:
    """The policy in training and what the driver may ask of it."""

    def __init__(
        self, cell: GrpoCell | SftCell, rate: float, objective: Objective, micro_tokens: int
    ):
        precision = choose_precision(cell.dtype, DEVICE)  # type: ignore[arg-type]
        loaded = load_model(Path(SETTINGS["model"]), precision)
        torch.manual_seed(0)
        if isinstance(cell, GrpoCell) and cell.lora:
            module, _ = train_lora(loaded.model, LoraOptions(shapes.LORA_RANK, shapes.LORA_ALPHA))
        else:
            module, _ = train_all(loaded.model)
        ends = frozenset() if SETTINGS.get("end") is None else frozenset([SETTINGS["end"]])
        sampler = sampler_of(module, ends, precision)
        self.policy = LanguagePolicy(module.train(), precision, ends, sampler=sampler)
        self.precision = precision
        if isinstance(sampler, PlainSampler):
            self.policy.plain = True
        self.vocabulary: int = loaded.model.config.vocab_size
        self.optimizer = make_optimizer(module.parameters(), lr=rate)
        self.objective = objective
        self.micro_tokens: int = SETTINGS.get("micro_tokens") or micro_tokens
        self.step_number = self.cursor = 0

    def collect(self, step: int) -> Batch:
        """What a step trains on."""
        raise NotImplementedError

    def facts(self, batch: Batch) -> Record:
        """What else a step's report says."""
        raise NotImplementedError

    def step(self) -> Record:
        """One whole step."""
        worker.reset_peak_of(DEVICE)
        whole = Meter.start()
        batch = self.collect(self.step_number)
        worker.finish(DEVICE)
        generation = whole.cpu, whole.wall
        for packed in batch.updates:
            self.train(packed)
        self.step_number += 1
        self.cursor += batch.consumed
        report = {**worker.step_report(whole, generation, DEVICE), **self.facts(batch)}
        return report | self.engine_facts()

    def engine_facts(self) -> Record:
        """Of vLLM: what the last hand-over and its proof took; its time counts from now on."""
        sampler = self.policy.sampler
        if not isinstance(sampler, ProvenSampler):
            return {}
        worker.BESIDE.add(opened(opening_of(self.policy.module, self.precision)).process.pid)
        names = ("load_seconds", "proof_seconds")
        return {name: sampler.measured.get(f"engine/{name}", 0.0) for name in names}

    def train(self, packed: Packed) -> None:
        """One optimizer update."""
        update(
            self.policy,
            packed,
            self.objective,
            self.optimizer,
            micro_tokens=self.micro_tokens,
            clip_norm=shapes.CLIP_NORM,
        )

    def use(self, tokens: int) -> Record:
        """Take a micro-batch budget for the steps to come."""
        self.micro_tokens = tokens
        return {}

    def gradient(self, packed: Packed) -> float:
        """The loss of the batch, after backward passes as `assay.train.update` has them."""
        total = 0.0
        micros = list(micro_batches(self.policy, packed, self.objective.atom, self.micro_tokens))
        with side_by_side(self.policy.module) if len(micros) > 1 else nullcontext():
            for micro in micros:
                output = self.objective(self.policy.score(micro), micro)
                output.loss.backward()
                total += output.loss.item()
        return total

    def compared(self, packed: Packed, gradients: str) -> Record:
        """Loss, and the worst gradient's distance from TRL's of the same batch.

        The distance is the norm of the difference over the norm of TRL's gradient. Raises KeyError
        where the two sides train other parameters.
        """
        loss, theirs = self.gradient(packed), torch.load(gradients)
        named = self.policy.module.named_parameters()
        ours = {name: p.grad for name, p in named if p.grad is not None}
        if set(ours) != set(theirs):
            raise KeyError(f"gradients of other parameters: {sorted(set(ours) ^ set(theirs))[:4]}")
        errors = {
            name: float((ours[name] - gradient).norm() / gradient.norm().clamp(min=1e-30))
            for name, gradient in theirs.items()
        }
        self.optimizer.zero_grad(set_to_none=True)
        worst = max(errors, key=errors.__getitem__)
        found = {"gradient_error": errors[worst], "worst_parameter": worst}
        return {"loss": loss, "parameters": len(errors), **found}

    def batch_tokens(self) -> Record:
        """Of each micro-batch: tokens through the layers, and positions that are scored."""
        packed = self.collect(self.step_number).updates[0]
        micros = micro_batches(self.policy, packed, self.objective.atom, self.micro_tokens)
        return {"micro_batches": [work_of(micro) for micro in micros]}


def work_of(packed: Packed) -> tuple[int, int]:
    """Tokens through the layers, and positions at which the vocabulary is scored."""
    prompts = {context: len(tokens_of(context)) for context in packed.contexts}
    fed = sum(length - 1 for length in packed.offsets_N1.diff().tolist())
    return sum(prompts.values()) + fed, len(prompts) + fed


def all_tokens(packed: Packed) -> int:
    """Tokens of contexts and answers."""
    return sum(len(tokens_of(c)) for c in packed.contexts) + len(packed.actions_S)


def no_text(tokens: Sequence[int]) -> str:
    """Completions are not decoded."""
    return ""


def judged(pairs: list[tuple[Row, Completion]]) -> list[Reward]:
    """The agreed reward of each completion."""
    return [Reward(shapes.reward_of(completion.tokens)) for _, completion in pairs]


class GrpoSide(Side):
    """GRPO on the prompts of `shapes`."""

    def __init__(self) -> None:
        self.cell = GrpoCell(**SETTINGS["cell"])
        self.options = GrpoStage.model_validate(
            {
                "method": "grpo",
                "data": "d",
                "steps": 1,
                "prompts": 1,
                "reward": "r",
                "algorithm": "trl_grpo",
                "drop_without_signal": True,
                "sampling": {"max_tokens": self.cell.completion},
            }
        )
        super().__init__(self.cell, shapes.GRPO_RATE, GrpoObjective(), self.options.micro_tokens)

    def method(self, step: int) -> Grpo:
        """The method over this step's prompts."""
        cell = self.cell
        contexts = {
            f"{step}/{which}": tuple(shapes.prompt_of(cell, self.vocabulary, step, which))
            for which in range(cell.prompts)
        }
        rows = tuple(Row(name, (Message("user", name),)) for name in contexts)
        longest = cell.completion if step else min(cell.completion, shapes.WARM_UP_COMPLETION)
        source = SingleTurn(contexts, Sampling(1.0, longest), 0, judged, no_text)  # type: ignore[arg-type]
        prompts = PromptStream(rows, source, cell.prompts, cell.group, 0)
        return Grpo(prompts, self.options, GrpoObjective(), no_text)

    def collect(self, step: int) -> Batch:
        """Sampled, judged and weighed groups."""
        return self.method(step).collect(self.policy, Place(), NoRecords())

    def facts(self, batch: Batch) -> Record:
        """Lengths, and how many groups carried signal."""
        completions = [sample.tokens for sample in batch.samples]
        return shapes.completion_facts(completions, self.cell.group)

    def sample(self) -> Record:
        """Completions of step 1's prompts, from which the driver chooses an end token."""
        return {"completions": [sample.tokens for sample in self.collect(1).samples]}

    def adapter(self, file: str) -> Record:
        """Write the trained weights, an adapter's second matrix made other than zero."""
        named = list(self.policy.module.named_parameters())
        with torch.no_grad():
            for name, weight in named:
                if "lora_B" in name:
                    weight.normal_(std=0.01)
        torch.save({name: p.detach() for name, p in named if p.requires_grad}, file)
        self.policy.updated()
        return {}

    def check(self, completions: list[list[int]], gradients: str) -> Record:
        """Advantages, loss and gradients of step 1's prompts with TRL's completions."""
        cell = self.cell
        groups = [
            self.group_of(which, completions[which * cell.group : (which + 1) * cell.group])
            for which in range(cell.prompts)
        ]
        choice = GroupChoice(tuple(range(cell.prompts)))
        packed = self.method(1).updates(self.policy, groups, choice)[0][0]
        advantages = packed.advantage_S[packed.offsets_N1[:-1]].tolist()
        return {**self.compared(packed, gradients), "advantages": advantages}

    def group_of(self, which: int, completions: list[list[int]]) -> list[Episode]:
        """A group of judged episodes behind one of step 1's prompts, cut to shapes.CHECK_PROMPT."""
        prompt = tuple(
            shapes.prompt_of(self.cell, self.vocabulary, 1, which)[: shapes.CHECK_PROMPT]
        )
        return [
            Episode(
                f"{which}#{member}",
                str(which),
                (Turn(prompt, tuple(tokens), (True,) * len(tokens)),),
                Reward(shapes.reward_of(tokens)),
            )
            for member, tokens in enumerate(completions)
        ]


def episodes_of(documents: Sequence[Document]) -> list[Episode]:
    """Documents as stored episodes whose answers are trained."""
    return [
        Episode(str(n), str(n), (Turn(tuple(prompt), tuple(answer), (True,) * len(answer)),))
        for n, (prompt, answer) in enumerate(documents)
    ]


class SftSide(Side):
    """SFT on the driver's documents, `batch` of them an update."""

    def __init__(self) -> None:
        micro_tokens = LoopSettings(1, shapes.SFT_RATE).micro_tokens
        super().__init__(SftCell(**SETTINGS["cell"]), shapes.SFT_RATE, NLL, micro_tokens)
        self.episodes = episodes_of(shapes.read_documents(SETTINGS["documents"]))
        self.method = Sft(tuple(self.episodes), SETTINGS["batch"], 0)
        if SETTINGS.get("recompute"):
            save_activations(self.policy.module)

    def collect(self, step: int) -> Batch:
        """The next documents, packed."""
        return self.method.collect(self.policy, Place(step, self.cursor), NoRecords())

    def facts(self, batch: Batch) -> Record:
        """Tokens of prompts and answers."""
        packed = batch.updates[0]
        return {"tokens": all_tokens(packed)}

    def trial(self, tokens: int) -> Record:
        """CPU-seconds per token and peak memory of the first documents at a micro-batch budget."""
        self.micro_tokens = tokens
        packed = likelihood_batch(self.episodes[: SETTINGS["batch"]])
        worker.reset_peak()
        meter = Meter.start()
        self.gradient(packed)
        self.optimizer.zero_grad(set_to_none=True)
        return {
            "cpu_per_token": meter.cpu / all_tokens(packed),
            "peak_bytes": worker.resident("VmHWM"),
        }

    def moments(self, document: Document) -> Record:
        """An update on this document, which makes the optimizer's moments."""
        worker.reset_peak()
        self.train(likelihood_batch(episodes_of([document])))
        return {"peak_bytes": worker.resident("VmHWM")}

    def check(self, documents: list[Document], gradients: str) -> Record:
        """Loss and gradients of these documents."""
        return self.compared(likelihood_batch(episodes_of(documents)), gradients)


class TrainerSide(Side):
    """GRPO's update alone: random answers of the cell's shape, behind a prompt each, as if another
    program had sampled and judged them."""

    def __init__(self) -> None:
        cell = GrpoCell(**SETTINGS["cell"])
        super().__init__(cell, shapes.GRPO_RATE, GrpoObjective(), SETTINGS["micro_tokens"])
        draw = random.Random(0)

        def tokens(count: int) -> tuple[int, ...]:
            return tuple(draw.randrange(2, self.vocabulary) for _ in range(count))

        turns = []
        for _ in range(cell.prompts):
            actions = tokens(cell.completion)
            told = (-10.0,) * len(actions)
            turns.append(Turn(tokens(cell.prompt), actions, (True,) * len(actions), told))
        packed = pack([Episode(str(n), str(n), (turn,)) for n, turn in enumerate(turns)], 1.0)
        weight_S = token_weights("token_mean", packed.mask_S, packed.episode_S)
        advantage_S = torch.where(packed.episode_S % 2 == 0, 1.0, -1.0)
        self.packed = packed.with_tokens(advantage_S=advantage_S, weight_S=weight_S)

    def collect(self, step: int) -> Batch:
        """The same batch each time: what it holds does not change what it costs."""
        return Batch((self.packed,), self.objective)

    def facts(self, batch: Batch) -> Record:
        """Tokens of prompts and answers."""
        return {"tokens": all_tokens(batch.updates[0])}


def main() -> None:
    """Answer commands until the driver closes."""
    torch.set_num_threads(SETTINGS["cell"]["threads"])
    side = {"grpo": GrpoSide, "sft": SftSide, "trainer": TrainerSide}[SETTINGS["method"]]()
    packages = worker.versions("assay-lab", "transformers", "torch", "peft")
    if SETTINGS.get("sampler") == "vllm":
        packages |= {f.package.partition("==")[0]: f.version for f in survey() if f.name == VLLM}
    CHANNEL.send(versions=packages, import_bytes=IMPORTS)
    CHANNEL.serve(side)


if __name__ == "__main__":
    main()
