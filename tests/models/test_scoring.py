"""Prompt-once scoring gives what the model itself gives, sequence by sequence."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, PreTrainedModel

from assay.errors import InputError
from assay.models.plain_forward import padded_moments
from assay.models.scoring import lay_out, score_actions, score_moments
from tests.tiny import FAMILIES, SIZES, VOCABULARY, tiny_model

Sequence = tuple[tuple[int, ...], tuple[int, ...]]


def plain_scores(
    model: PreTrainedModel, sequences: list[Sequence], temperature: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """One forward per sequence, no sharing, no packing."""
    logps, entropies = [], []
    for context, actions in sequences:
        ids = torch.tensor([context + actions])
        logits = model(ids).logits[0, len(context) - 1 : -1] / temperature
        table = logits.log_softmax(-1)
        logps.append(table[range(len(actions)), list(actions)])
        entropies.append(-(table.exp() * table).sum(-1))
    return torch.cat(logps), torch.cat(entropies)


def flat(sequences: list[Sequence]) -> tuple[list[tuple[int, ...]], torch.Tensor, torch.Tensor]:
    """The contexts, all actions in a row, and where those of each sequence begin."""
    actions_S = torch.tensor([a for _, actions in sequences for a in actions])
    offsets_N1 = torch.tensor([0] + [len(actions) for _, actions in sequences]).cumsum(0)
    return [context for context, _ in sequences], actions_S, offsets_N1


def shared_scores(
    model: PreTrainedModel, sequences: list[Sequence], temperature: float
) -> tuple[torch.Tensor, torch.Tensor]:
    logps_S, entropy_S = score_actions(
        model, *flat(sequences), temperature=temperature, entropy=True
    )
    assert entropy_S is not None
    return logps_S, entropy_S


token = st.integers(0, VOCABULARY - 1)
completion = st.lists(token, min_size=1, max_size=9).map(tuple)
group = st.tuples(
    st.lists(token, min_size=1, max_size=14).map(tuple),
    st.lists(completion, min_size=1, max_size=5),
)


@given(groups=st.lists(group, min_size=1, max_size=3), data=st.data())
def test_shared_prompts_change_no_log_prob_and_no_gradient(groups, data):
    family = data.draw(st.sampled_from(sorted(FAMILIES)))
    temperature = data.draw(st.sampled_from([1.0, 0.7]))
    sequences = data.draw(st.permutations([(p, c) for p, cs in groups for c in cs]))
    shared, plain = tiny_model(family).double(), tiny_model(family).double()
    ours, our_entropy = shared_scores(shared, sequences, temperature)
    theirs, their_entropy = plain_scores(plain, sequences, temperature)
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=0)
    torch.testing.assert_close(our_entropy, their_entropy, atol=1e-6, rtol=0)
    weights = torch.randn(len(ours), dtype=torch.float64)
    (ours * weights).sum().backward()
    (theirs * weights).sum().backward()
    for (name, a), b in zip(shared.named_parameters(), plain.parameters(), strict=True):
        assert a.grad is not None and b.grad is not None, name
        # The models' own norms run in float32, whatever the weights are.
        torch.testing.assert_close(a.grad, b.grad, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("config", "extra"),
    [
        (MistralConfig, {"sliding_window": None}),
        (LlamaConfig, {"attention_bias": True, "mlp_bias": True}),
    ],
    ids=["mistral", "llama with biases"],
)
def test_other_families_score_as_they_do_alone(config, extra):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config(**SIZES, **extra)).double()
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter)
    sequences = [((5, 6, 7), (9, 10, 11)), ((5, 6, 7), (20, 21)), ((8,), (30,))]
    ours, _ = shared_scores(model, sequences, 1.0)
    theirs, _ = plain_scores(model, sequences, 1.0)
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=0)


@pytest.mark.parametrize("feature", ["sliding_window", "attention dropout"])
def test_attention_that_is_not_computed_is_refused(feature):
    model = tiny_model().train()
    attention = model.model.layers[1].self_attn
    if feature == "sliding_window":
        attention.sliding_window = 4
    else:
        attention.attention_dropout = 0.1
    with pytest.raises(InputError, match=feature):
        shared_scores(model, [((5, 6), (7, 8))], 1.0)


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_turns_that_go_on_from_each_other_are_computed_once_and_scored_alike(family):
    model = tiny_model(family).double()
    first = [((5, 6, 7, 8), (20, 21)), ((5, 6, 7, 8), (22, 23, 24))]
    turns = []
    for context, actions in first:
        turns.append((context, actions))
        for tool in ((30, 31, 32), (33,)):
            context = (*context, *actions, *tool)
            actions = (40 + len(context), 41)
            turns.append((context, actions))
    # Same beginning, other actions: not a continuation.
    turns.append(((*turns[0][0], 99, *turns[0][1], 7), (50,)))
    together, _ = score_actions(model, *flat(turns))
    apart = [score_actions(model, *flat([turn]))[0] for turn in turns]
    torch.testing.assert_close(together, torch.cat(apart), atol=1e-6, rtol=0)
    laid = lay_out(*flat(turns))
    chains = [len(turns[2][0]) + 1, len(turns[5][0]) + 1]
    shared, alone = len(turns[0][0]), len(turns[6][0])
    assert len(laid.tokens_T) == sum(chains) - shared + alone


@pytest.mark.parametrize("moments", [score_moments, padded_moments])
@pytest.mark.parametrize("family", ["llama", "granite"])
def test_moments_are_those_of_the_whole_distribution(family, moments) -> None:
    model, temperature = tiny_model(family), 0.7
    sequences = [((5, 6, 7), (8, 9)), ((5, 6, 7), (10, 11, 12)), ((20, 21), (22,))]
    logps_S, entropy_S, variance_S = moments(model, *flat(sequences), temperature)
    expected_S, entropies_S = plain_scores(model, sequences, temperature)
    torch.testing.assert_close(logps_S, expected_S.detach(), atol=1e-4, rtol=0)
    torch.testing.assert_close(entropy_S, entropies_S.detach(), atol=1e-4, rtol=0)
    spread = []
    for context, tail in sequences:
        logits = model(torch.tensor([context + tail])).logits[0, len(context) - 1 : -1].detach()
        table = (logits / temperature).log_softmax(-1)
        mean = (table.exp() * table).sum(-1, keepdim=True)
        spread.append((table.exp() * (table - mean) ** 2).sum(-1))
    torch.testing.assert_close(variance_S, torch.cat(spread), atol=1e-4, rtol=1e-4)
