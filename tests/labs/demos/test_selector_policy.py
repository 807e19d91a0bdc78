"""A selector picks without replacement by the probabilities that it scores, whatever else is in the
batch; dropout is where a gradient is, by the step's key.
"""

import itertools

import pytest
import torch
from torch import nn

from assay.data.episode import Episode, Turn
from assay.errors import RunFailure
from assay.labs.demos.modules import SelectionContext, SelectorSizes, make_selector
from assay.labs.demos.selector_learner import RandomPolicy, SelectorPolicy
from assay.models.lora import begin_masks
from assay.rl.packed import Packed, pack
from assay.rl.policy import SampleKey, Sampling
from tests.labs.demos.choices import WIDTH, choice

KINDS = ["pointer", "gate", "lever", "similarity"]
GREEDY = Sampling(0.0)


def module(kind: str) -> nn.Module:
    gate = kind == "gate"
    made = make_selector(
        "pointer" if gate else kind, SelectorSizes(WIDTH, 16, 0.5, 0.3, gate, 12), 1
    )
    if kind == "lever":  # words that begin nearly alike would hide a mistake
        with torch.no_grad():
            made.get_parameter("transformer.wte.weight").mul_(8)
    return made


def turn(one: SelectionContext, picks: tuple[int, ...]) -> Turn:
    return Turn(one, picks, (True,) * len(picks))


def packed(*turns: Turn, temperature: float = 1.0) -> Packed:
    return pack([Episode(str(n), str(n), (each,)) for n, each in enumerate(turns)], temperature)


def keys(count: int) -> list[SampleKey]:
    return [SampleKey(0, "a", sample) for sample in range(count)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_the_probabilities_of_all_ordered_picks_add_up_to_one(kind, temperature):
    one = choice()
    turns = [turn(one, picks) for picks in itertools.permutations(one.pool, 2)]
    with torch.no_grad():
        logps_S = (
            SelectorPolicy(module(kind)).score(packed(*turns, temperature=temperature)).logps_S
        )
    assert float(logps_S.view(-1, 2).sum(1).exp().sum()) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_teacher_forcing_gives_the_log_probs_that_were_sampled(kind):
    policy = SelectorPolicy(module(kind))
    contexts = [choice(0), choice(1, (3, 8)), choice(0), choice(2, (1, 2, 3, 4, 5, 6), 3)]
    turns = policy.sample(contexts, keys(4), Sampling(0.7))
    assert [len(t.actions) for t in turns] == [2, 2, 2, 3]
    scores = policy.score(packed(*turns, temperature=0.7), entropy=True)
    expected = [x for t in turns for x in t.behaviour_logps or ()]
    torch.testing.assert_close(scores.logps_S.detach(), torch.tensor(expected))
    for n, one in enumerate(turns):
        alone = policy.score(packed(one, temperature=0.7), entropy=True)
        start = sum(len(t.actions) for t in turns[:n])
        torch.testing.assert_close(
            scores.logps_S[start : start + len(one.actions)], alone.logps_S, rtol=1e-4, atol=1e-5
        )


def test_picks_come_as_often_as_their_probability_says_and_depend_on_their_key_alone():
    policy, one = SelectorPolicy(module("pointer")), choice()
    turns = policy.sample([one] * 4000, keys(4000), Sampling(1.0))
    (again,) = policy.sample([one], keys(78)[77:], Sampling(1.0))
    assert again.actions == turns[77].actions
    expected = float(policy.score(packed(turns[0])).logps_S.detach().sum().exp())
    share = sum(t.actions == turns[0].actions for t in turns) / len(turns)
    assert abs(share - expected) < 4 * (expected * (1 - expected) / len(turns)) ** 0.5


@pytest.mark.parametrize("kind", KINDS)
def test_greedy_picks_are_the_highest_of_those_left_in_any_order_of_the_pool(kind):
    policy = SelectorPolicy(module(kind))
    pool, turned = (7, 2, 11, 4, 9), (4, 7, 9, 11, 2)
    plain, other = policy.sample([choice(pool=pool), choice(pool=turned)], keys(2), GREEDY)
    assert plain.actions == other.actions
    singles = [(a,) for a in pool if a != plain.actions[0]]
    turns = [turn(choice(pool=pool), (plain.actions[0], *last)) for last in singles]
    with torch.no_grad():
        seconds = policy.score(packed(*turns)).logps_S.view(-1, 2)[:, 1]
    assert singles[int(seconds.argmax())] == plain.actions[1:]


def test_random_picks_are_uniform_even_greedily_and_differ_between_samples():
    policy, one = (
        RandomPolicy(make_selector("random", SelectorSizes(WIDTH, 1, 0, 1, False, 1), 0)),
        choice(),
    )
    turns = policy.sample([one] * 4000, keys(4000), GREEDY)
    for pick in one.pool:
        share = sum(pick in t.actions for t in turns) / len(turns)
        assert abs(share - 2 / 5) < 4 * (0.24 / len(turns)) ** 0.5
    assert policy.sample([one], keys(8)[7:], GREEDY)[0].actions == turns[7].actions


def test_a_pick_outside_the_pool_is_no_pick():
    with pytest.raises(RunFailure, match="not in the pool"):
        SelectorPolicy(module("pointer")).score(packed(turn(choice(), (7, 3))))


@pytest.mark.parametrize("kind", ["pointer", "lever"])
def test_dropout_is_where_a_gradient_is_and_follows_the_step(kind):
    batch = packed(turn(choice(), (7, 2)), turn(choice(1), (4, 9)))
    dropping, plain = SelectorPolicy(module(kind), dropout=True), SelectorPolicy(module(kind))

    def logps(policy: SelectorPolicy, step: int) -> torch.Tensor:
        begin_masks(policy.module, 0, step)
        return policy.score(batch).logps_S

    with torch.no_grad():
        still = logps(dropping, 1)
    assert torch.equal(still, logps(plain, 1).detach()), "without a gradient nothing is dropped"
    torch.manual_seed(0)  # no other state of torch's generator than at the repetition below
    first = logps(dropping, 1).detach()
    assert not torch.allclose(first, still)
    assert not torch.allclose(first, logps(dropping, 2).detach())
    torch.manual_seed(1)
    assert torch.equal(first, logps(dropping, 1).detach()), "a repeated step drops the same"
    (drawn,) = dropping.sample([choice()], keys(1), Sampling(1.0))
    (same,) = plain.sample([choice()], keys(1), Sampling(1.0))
    assert drawn == same


def test_the_reference_is_the_frozen_copy_without_gradient():
    trained, frozen = module("pointer"), module("pointer")
    policy, batch = SelectorPolicy(trained, frozen), packed(turn(choice(), (7, 2)))
    before = policy.score(batch).logps_S.detach()
    with torch.no_grad():
        for parameter in trained.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    with policy.reference():
        kept = policy.score(batch).logps_S
    assert torch.equal(kept, before) and not kept.requires_grad
    assert not torch.allclose(policy.score(batch).logps_S.detach(), before)
