"""The sampler draws what a plain loop would draw, whatever shares its batch."""

import dataclasses

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from assay.models.scoring import score_actions
from assay.rl.policy import SampleKey
from assay.rollout import engine
from assay.rollout.engine import sample_turns
from assay.rollout.sampling import Sampling
from tests.tiny import FAMILIES, tiny_model

ENDS = frozenset({7, 8, 9, 10, 11, 12})
PROMPTS = [tuple(range(5, 25)), tuple(range(3, 10)), tuple(range(100, 130)), (4,)]


def requests(group: int) -> tuple[list[tuple[int, ...]], list[SampleKey]]:
    contexts = [prompt for prompt in PROMPTS for _ in range(group)]
    keys = [SampleKey(0, str(r), g) for r in range(len(PROMPTS)) for g in range(group)]
    return contexts, keys


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_greedy_tokens_equal_generate(family):
    contexts, keys = requests(1)
    turns = sample_turns(tiny_model(family), contexts, keys, Sampling(0, 24), ENDS)
    plain = tiny_model(family, attention="sdpa")
    for context, turn in zip(contexts, turns, strict=True):
        expected = plain.generate(  # type: ignore[operator]
            torch.tensor([context]),
            max_new_tokens=24,
            do_sample=False,
            eos_token_id=sorted(ENDS),
            pad_token_id=0,
        )[0, len(context) :]
        assert list(turn.actions) == expected.tolist()


def test_a_completion_is_the_same_alone_in_any_batch_and_after_retirement():
    model = tiny_model().double()
    contexts, keys = requests(5)
    together = sample_turns(model, contexts, keys, Sampling(1.0, 30), ENDS)
    assert len({len(turn.actions) for turn in together}) > 3, "rows must retire at different times"
    assert len({turn.actions for turn in together}) > 15, "samples of a group must differ"
    for n in range(0, len(contexts), 3):
        alone = sample_turns(model, [contexts[n]], [keys[n]], Sampling(1.0, 30), ENDS)[0]
        assert alone.actions == together[n].actions
    order = list(range(len(contexts)))[::-1]
    backwards = sample_turns(
        model, [contexts[n] for n in order], [keys[n] for n in order], Sampling(1.0, 30), ENDS
    )
    assert [t.actions for t in backwards] == [together[n].actions for n in order]


def test_several_waves_draw_what_one_wave_draws(monkeypatch):
    model = tiny_model().double()
    contexts, keys = requests(6)
    one = sample_turns(model, contexts, keys, Sampling(1.0, 12), ENDS)
    monkeypatch.setattr(engine, "WAVE_ROWS", 5)
    several = sample_turns(model, contexts, keys, Sampling(1.0, 12), ENDS)
    assert [t.actions for t in one] == [t.actions for t in several]


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_behaviour_log_probs_equal_the_training_forward(temperature):
    model = tiny_model()
    contexts, keys = requests(4)
    turns = sample_turns(model, contexts, keys, Sampling(temperature, 20), ENDS)
    actions_S = torch.tensor([a for t in turns for a in t.actions])
    offsets_N1 = torch.tensor([0] + [len(t.actions) for t in turns]).cumsum(0)
    scored_S, _ = score_actions(model, contexts, actions_S, offsets_N1, temperature=temperature)
    sampled_S = torch.tensor([x for t in turns for x in t.behaviour_logps or ()])
    torch.testing.assert_close(sampled_S, scored_S.detach(), atol=2e-5, rtol=0)


def test_a_turn_says_how_it_ended_and_keeps_its_end_token():
    contexts, keys = requests(4)
    turns = sample_turns(tiny_model(), contexts, keys, Sampling(1.0, 10), ENDS, policy_version=3)
    assert {turn.ended for turn in turns} == {"stop", "length"}
    for turn in turns:
        assert (turn.actions[-1] in ENDS) == (turn.ended == "stop")
        assert not set(turn.actions[:-1]) & ENDS
        assert len(turn.actions) <= 10
        assert turn.policy_version == 3
        assert len(turn.loss_mask) == len(turn.actions) == len(turn.behaviour_logps or ())
    assert dataclasses.asdict(turns[0])["context"] == contexts[0]


@given(
    alive=st.lists(st.lists(st.booleans(), min_size=6, max_size=6), min_size=1, max_size=6).filter(
        lambda rows: any(map(any, rows))
    )
)
def test_compacting_keeps_every_living_row_under_its_own_prompt(alive):
    flags = [flag for row in alive for flag in row]
    turn_B = torch.tensor([r if flag else -1 for r, flag in enumerate(flags)])
    rows, turns, slots = engine.compact(turn_B, 6)
    kept = {int(turn): int(row) for row, turn in zip(rows, turns, strict=True) if turn >= 0}
    assert kept == {int(turn): int(turn) for turn in turn_B if turn >= 0}
    assert len(rows) == len(turns) and len(rows) % slots == 0
    assert len(rows) >= min(engine.LEAST_ROWS, len(turn_B))
    prompts = (rows // 6).view(-1, slots)
    assert (prompts == prompts[:, :1]).all()
