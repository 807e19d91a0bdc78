"""One rollout and one update of Assay's on arbitrary prompts, as `limit` and `growth` measure them.

Both go through what a run goes through: the policy's sampler and `train.update`, in one thread.
Completions have a forced length and every completion an advantage, so that nothing is left out.
"""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from small_models import model_folder

from assay.data.episode import Episode, Turn
from assay.models.load import load_model
from assay.models.optimizer import make_optimizer
from assay.models.precision import choose_precision
from assay.rl.objectives import Grpo
from assay.rl.packed import Packed, pack
from assay.rl.policy import SampleKey, Sampling
from assay.rollout.policies.language import LanguagePolicy
from assay.train.grpo import GrpoSettings
from assay.train.update import update

MODEL = "smollm2"
OBJECTIVE = Grpo()
Prompt = tuple[int, ...]


@dataclass(frozen=True)
class Trainee:
    """A policy with its optimizer."""

    policy: LanguagePolicy
    optimizer: torch.optim.Optimizer

    @property
    def config(self) -> Any:
        """The model's config."""
        return self.policy.module.config


def make_trainee(dtype: str) -> Trainee:
    """SmolLM2 with AdamW, computing in `fp32` or `bf16`, in one thread."""
    torch.set_num_threads(1)
    precision = choose_precision(dtype, "cpu")  # type: ignore[arg-type]
    model = load_model(model_folder(MODEL), precision).model
    policy = LanguagePolicy(model.train(), precision, frozenset())  # type: ignore[arg-type]
    return Trainee(policy, make_optimizer(model.parameters(), lr=1e-6))


def arbitrary_tokens(count: int, seed: str) -> Prompt:
    """Ordinary tokens that mean nothing."""
    generator = random.Random(seed)
    return tuple(generator.randrange(6144, 49152) for _ in range(count))


def sample_groups(
    trainee: Trainee, prompts: Sequence[Prompt], group: int, tokens: int, seed: int
) -> list[Turn]:
    """`group` completions of exactly `tokens` behind each prompt."""
    contexts = [prompt for prompt in prompts for _ in range(group)]
    keys = [SampleKey(seed, str(n), n % group) for n in range(len(contexts))]
    return trainee.policy.sample(contexts, keys, Sampling(1.0, tokens))


def single_turns(turns: Sequence[Turn], group: int) -> list[Episode]:
    """Each turn as an episode of its own, `group` neighbours to a group."""
    return [Episode(str(n), str(n // group), (turn,)) for n, turn in enumerate(turns)]


def batch_of(episodes: Sequence[Episode]) -> Packed:
    """A training batch: advantages 1 and -1 in turn, each token with equal weight."""
    packed = pack(episodes)
    advantage_S = 1.0 - 2.0 * (packed.episode_S % 2)
    return packed.with_tokens(
        advantage_S=advantage_S, weight_S=packed.mask_S.float() / len(packed.actions_S)
    )


def train_on(trainee: Trainee, packed: Packed) -> None:
    """One update, in micro-batches of a run's default size."""
    update(
        trainee.policy,
        packed,
        OBJECTIVE,
        trainee.optimizer,
        micro_tokens=GrpoSettings().micro_tokens,
        clip_norm=1.0,
    )


def timed(action: Callable[[], Any]) -> tuple[float, Any]:
    """CPU-seconds of all threads of this process, and the result."""
    start = time.process_time()
    result = action()
    return time.process_time() - start, result
