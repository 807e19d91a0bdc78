"""Sections that compare the device with Transformers' own forward on the CPU, in fp32.

In fp32 differences must stay within what rounding makes, as in a run's self-check. In bf16 correct
results differ: there they must stay within a multiple of how far the CPU itself is off in bf16.
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn

from assay.data.episode import Episode, Turn
from assay.rl.losses import LOSSES
from assay.rl.objectives import GrpoObjective, NllObjective, Objective
from assay.rl.packed import Packed, pack
from assay.rl.policy import SampleKey, Sampling
from assay.rl.preference import Preference
from assay.rollout.policies.language import LanguagePolicy
from assay.rollout.policies.self_check import GRADIENT, LOGP, ROLLOUT_LOGP, ROUNDINGS
from assay.train.likelihood import likelihood_batch, pair_batch, weighted_batch
from assay.train.pair_choice import Pair
from assay.train.update import make_optimizer, update
from benchmarks.gpu.rows import Check, Rows, Setup
from benchmarks.gpu.subjects import (
    DTYPES,
    GROUP,
    adapted,
    batch,
    device_policy,
    episodes,
    few_threads,
    on_device,
    reference_policy,
    rough_policy,
    subjects_of,
)

SLACK = 5e-4
"""In bf16, on top: a mean over few tokens scatters."""
SMALL = 0.01
"""A parameter's gradient counts as at least this share of the whole gradient's norm."""
RATE, STEPS = 1e-4, 3
PATH = 0.05
"""Largest relative difference of the change of weights after STEPS updates in fp32."""
LOSS = 1e-3
"""The same of a loss, relative to the size of its terms."""
MICRO = 96
"""Tokens of a micro-batch: a batch makes several."""


def score(setup: Setup, rows: Rows) -> None:
    """Log-probs and entropies."""
    for subject in subjects_of(setup):
        module = adapted(subject, setup.small)
        reference, rough = reference_policy(module), rough_policy(module)
        packed = batch(module, reference)
        expected, rounded = scored(reference, packed), scored(rough, packed)
        for dtype in DTYPES:
            with rows.guarded(f"{subject.name}, {dtype}"), few_threads(setup):
                found = scored(device_policy(module, dtype, setup), packed)
                for name in found:
                    values = found[name], expected[name], rounded[name]
                    off, allowed = distance(dtype, *values, LOGP)
                    rows.check(f"{name} of {subject.name}, {dtype}", off, allowed)


def distance(
    dtype: str, found_S: Tensor, exact_S: Tensor, rough_S: Tensor, exactness: float
) -> tuple[float, float]:
    """In fp32 the largest difference, in bf16 the mean; and what is allowed."""
    off_S = (found_S - exact_S).abs()
    if dtype == "fp32":
        return float(off_S.max()), exactness
    return float(off_S.mean()), ROUNDINGS * float((rough_S - exact_S).abs().mean()) + SLACK


def scored(policy: LanguagePolicy, packed: Packed) -> dict[str, Tensor]:
    """By name."""
    with torch.no_grad():
        scores = policy.score(packed, entropy=True)
    assert scores.entropy_S is not None
    return {"log-probs": scores.logps_S, "entropies": scores.entropy_S}


def objectives() -> Mapping[str, Objective]:
    """Every loss, with the terms that may be added."""
    losses = {name: GrpoObjective(loss=name, several_updates=True) for name in LOSSES}
    more = {
        "ppo_clip, KL and entropy": GrpoObjective(
            kl_coef=0.1, entropy_coef=0.1, several_updates=True
        ),
        "likelihood": NllObjective(),
        "preference": Preference(),
    }
    return {**losses, **more}


def gradients(setup: Setup, rows: Rows) -> None:
    """The gradient of each objective on one batch."""
    for subject in subjects_of(setup):
        module = adapted(subject, setup.small)
        reference, rough = reference_policy(module), rough_policy(module)
        packed = batch(module, reference)
        kinds = {
            name: (objective, in_pairs(packed, module) if name == "preference" else packed)
            for name, objective in objectives().items()
        }
        exact = {name: gradient(reference, *kind) for name, kind in kinds.items()}
        own = {name: apart(gradient(rough, *kind), exact[name]) for name, kind in kinds.items()}
        for dtype in DTYPES:
            what = f"gradients of {subject.name}, {dtype}"
            with rows.guarded(what), few_threads(setup):
                policy, found = device_policy(module, dtype, setup), list[Check]()
                for name, kind in kinds.items():
                    allowed = GRADIENT if dtype == "fp32" else ROUNDINGS * own[name] + SLACK
                    off = apart(gradient(policy, *kind), exact[name])
                    found.append(Check(name, off, allowed))
                rows.worst(f"{what}, of {len(kinds)} objectives", found)


def in_pairs(packed: Packed, module: nn.Module) -> Packed:
    """The batch's completions two by two, with its log-probs of the reference."""
    made = episodes(module.get_input_embeddings().num_embeddings)  # type: ignore[operator]
    pairs = [Pair(a, b, (1.0, 0.0)) for a, b in zip(made[::2], made[1::2], strict=True)]
    return pair_batch(pairs, "plain").with_tokens(reference_S=packed.reference_S)


def gradient(policy: LanguagePolicy, objective: Objective, packed: Packed) -> dict[str, Tensor]:
    """By parameter, on the CPU."""
    scores = policy.score(packed, entropy=objective.needs.entropy)
    objective(scores, packed).loss.backward()
    named = policy.module.named_parameters()
    found = {name: p.grad.cpu().clone() for name, p in named if p.grad is not None}
    policy.module.zero_grad(set_to_none=True)
    return found


def apart(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> float:
    """The worst parameter's difference, relative to its norm or a share of the whole norm."""
    assert set(found) == set(expected), "gradients of other parameters"
    whole = float(torch.stack([tensor.norm() for tensor in expected.values()]).norm())
    floor = SMALL * whole
    return max(
        float((found[name] - tensor).norm()) / max(float(tensor.norm()), floor)
        for name, tensor in expected.items()
    )


def sample(setup: Setup, rows: Rows) -> None:
    """Tokens and log-probs of the own engine and the plain one."""
    for subject in subjects_of(setup):
        module = adapted(subject, setup.small)
        reference, rough = reference_policy(module), rough_policy(module)
        prompts = {e.turns[0].context: e for e in episodes(200)}
        contexts = [prompt for prompt in prompts for _ in range(GROUP)]
        keys = [SampleKey(0, str(n // GROUP), n % GROUP) for n in range(len(contexts))]
        for temperature in (0.0, 1.0):
            sampling = Sampling(temperature, 24)
            kind = "drawn" if temperature else "greedy"
            expected = reference.sample(contexts, keys, sampling)
            for dtype in DTYPES:
                what = f"{kind} tokens of {subject.name}, {dtype}"
                with rows.guarded(what), few_threads(setup):
                    policy = device_policy(module, dtype, setup)
                    turns = policy.sample(contexts, keys, sampling)
                    compare_turns(rows, what, dtype, turns, expected, (reference, rough))


def compare_turns(
    rows: Rows,
    what: str,
    dtype: str,
    turns: list[Turn],
    expected: list[Turn],
    references: tuple[LanguagePolicy, LanguagePolicy],
) -> None:
    """Recorded log-probs against the CPU's of the same tokens; in fp32 the tokens too."""
    packed = pack([Episode(str(n), str(n), (turn,)) for n, turn in enumerate(turns)])
    exact, rough = (scored(policy, packed)["log-probs"] for policy in references)
    assert packed.behaviour_S is not None
    off, allowed = distance(dtype, packed.behaviour_S, exact, rough, ROLLOUT_LOGP)
    rows.check(f"log-probs of {what}", off, allowed)
    if dtype == "fp32":
        others = sum(a.actions != b.actions for a, b in zip(turns, expected, strict=True))
        rows.check(f"share of completions with other {what}", others / len(turns), 0.0)


Make = Callable[[list[Episode], Packed], tuple[Packed, Objective]]
METHODS: Mapping[str, Make] = {
    "SFT": lambda made, packed: (likelihood_batch(made), NllObjective()),
    "RCE": lambda made, packed: (weighted_batch(made, 0.5, 1.0), NllObjective()),
    "GRPO": lambda made, packed: (replace(packed, old_S=None), GrpoObjective(kl_coef=0.05)),
}
"""A batch and its objective."""


def updates(setup: Setup, rows: Rows) -> None:
    """The optimizer alone, then steps of each method."""
    for subject in subjects_of(setup):
        module = adapted(subject, setup.small)
        with rows.guarded(f"optimizer, {subject.name}"), few_threads(setup):
            off, rough = optimizer_differences(module, setup)
            what = f"optimizer step from the same gradients, {subject.name}"
            rows.check(what, off, ROUNDINGS * rough)
        made = episodes(module.get_input_embeddings().num_embeddings)  # type: ignore[operator]
        packed = batch(module, reference_policy(module))
        for name, make in METHODS.items():
            given = make(made, packed)
            references = reference_policy(module), rough_policy(module)
            exact, rough = (trained(policy, *given) for policy in references)
            for dtype in DTYPES:
                what = f"{STEPS} {name} steps, {subject.name}, {dtype}"
                with rows.guarded(what), few_threads(setup):
                    found = trained(device_policy(module, dtype, setup), *given)
                    compare_paths(rows, what, dtype, found, exact, rough)


Path = tuple[list[float], float, dict[str, Tensor]]
"""Losses, the size of their terms, and weights in the end."""


def trained(policy: LanguagePolicy, packed: Packed, objective: Objective) -> Path:
    """Some updates on one batch: losses, and by how much each weight changed."""
    before = {n: p.detach().cpu().clone() for n, p in policy.module.named_parameters()}
    optimizer = make_optimizer(policy.module.parameters(), lr=RATE)
    sizes = {"micro_tokens": MICRO, "clip_norm": 1.0}
    done = [update(policy, packed, objective, optimizer, **sizes).totals for _ in range(STEPS)]
    after = {n: p.detach().cpu() for n, p in policy.module.named_parameters()}
    changed = {name: after[name] - before[name] for name in after}
    return [totals.loss for totals in done], max(t.size for t in done), changed


def compare_paths(rows: Rows, what: str, dtype: str, found: Path, exact: Path, rough: Path) -> None:
    """Losses and changes of weights."""

    def off(path: Path) -> tuple[float, float]:
        losses = max(abs(a - b) for a, b in zip(path[0], exact[0], strict=True))
        pairs = [(path[2][name] - tensor, tensor) for name, tensor in exact[2].items()]
        distance = torch.stack([difference.norm() for difference, _ in pairs]).norm()
        return losses / exact[1], float(distance / torch.stack([t.norm() for _, t in pairs]).norm())

    loss, change = off(found)
    own_loss, own_change = off(rough)
    fp32 = dtype == "fp32"
    rows.check(f"{what}, loss", loss, LOSS if fp32 else ROUNDINGS * own_loss + SLACK)
    rows.check(f"{what}, change of weights", change, PATH if fp32 else ROUNDINGS * own_change)


def optimizer_differences(module: nn.Module, setup: Setup) -> tuple[float, float]:
    """Relative differences of the change by one AdamW step from gradients that are the same: the
    device's and the CPU's in fp32, each from the CPU's in fp64."""
    exact = copy.deepcopy(module).double()
    starts = [p.detach().clone() for p in exact.parameters()]
    draw = torch.Generator().manual_seed(0)
    grads = [torch.randn(p.shape, generator=draw) for p in starts]

    def change(side: nn.Module) -> list[Tensor]:
        for parameter, grad in zip(side.parameters(), grads, strict=True):
            if parameter.requires_grad:
                parameter.grad = grad.to(parameter.device, parameter.dtype)
        make_optimizer(side.parameters(), lr=RATE, weight_decay=0.1).step()
        ends = [p.detach().cpu().double() for p in side.parameters()]
        return [end - start for end, start in zip(ends, starts, strict=True)]

    expected = change(exact)
    size = torch.stack([c.norm() for c in expected]).norm()

    def off(side: nn.Module) -> float:
        apart = [a - b for a, b in zip(change(side), expected, strict=True)]
        return float(torch.stack([a.norm() for a in apart]).norm() / size)

    return off(on_device(module, setup)), off(copy.deepcopy(module))
