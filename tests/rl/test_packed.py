"""Packing turns: offsets, masks, groups, and taking some of the turns."""

import torch

from assay.data.episode import Episode, Turn
from assay.rl.packed import pack

EPISODES = [
    Episode("a", "x", (Turn((0,), (1, 2), (True, False), (-0.1, -0.2)),)),
    Episode(
        "b", "y", (Turn((1,), (3,), (True,), (-0.3,)), Turn((2,), (4, 5), (True, True), (-1, -2)))
    ),
    Episode("c", "x", (Turn((3,), (6,), (False,), (-0.5,)),)),
]


def test_turns_are_laid_end_to_end():
    packed = pack(EPISODES, temperature=0.7)
    assert packed.contexts == ((0,), (1,), (2,), (3,))
    assert packed.actions_S.tolist() == [1, 2, 3, 4, 5, 6]
    assert packed.offsets_N1.tolist() == [0, 2, 3, 5, 6]
    assert packed.turn_S.tolist() == [0, 0, 1, 2, 2, 3]
    assert packed.episode_S.tolist() == [0, 0, 1, 1, 1, 2]
    assert packed.group_S.tolist() == [0, 0, 1, 1, 1, 0]
    assert packed.weight_S.tolist() == [1, 0, 1, 1, 1, 0]
    assert packed.temperature == 0.7


def test_taking_turns_keeps_their_tokens_weights_and_episode_numbers():
    packed = pack(EPISODES).with_tokens(old_S=torch.arange(6.0))
    taken = packed.take([3, 1])
    assert taken.contexts == ((3,), (1,))
    assert taken.actions_S.tolist() == [6, 3]
    assert taken.offsets_N1.tolist() == [0, 1, 2]
    assert taken.episode_S.tolist() == [2, 1]
    assert taken.group_S.tolist() == [0, 1]
    assert taken.mask_S.tolist() == [False, True]
    assert taken.old_S is not None and taken.old_S.tolist() == [5, 2]
    assert taken.reference_S is None
