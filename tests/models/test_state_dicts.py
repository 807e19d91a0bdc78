"""A state dict fits completely or nothing is loaded, and every key that does not fit is named."""

import pytest
import torch
from torch import Tensor, nn

from assay.models.load import copy_strictly, tied_names, untied_state, weight_fingerprint
from tests.models.folders import tiny_model


def copied(model: nn.Module, shift: float = 0.0) -> dict[str, Tensor]:
    return {
        name: tensor.clone() + shift for name, tensor in untied_state(model.state_dict()).items()
    }


@pytest.mark.parametrize("name", ["lm_head.weight", "model.embed_tokens.weight"])
def test_one_name_of_a_tied_weight_stands_for_both(name: str) -> None:
    model = tiny_model(tied=True)
    weight = torch.rand(model.get_input_embeddings().weight.shape)  # type: ignore[arg-type]
    state = {k: v for k, v in copied(model).items() if k not in tied_names(model.state_dict())[0]}
    copy_strictly(model.state_dict(), state | {name: weight})
    assert torch.equal(model.get_input_embeddings().weight, weight)  # type: ignore[arg-type]


def test_the_fingerprint_depends_on_every_weight_and_on_nothing_else() -> None:
    model, same = tiny_model(), tiny_model()
    original = weight_fingerprint(model)
    assert weight_fingerprint(same) == original
    for parameter in same.parameters():
        kept = parameter.detach().clone()
        with torch.no_grad():
            parameter.view(-1)[-1] += 1e-6
        assert weight_fingerprint(same) != original
        with torch.no_grad():
            parameter.copy_(kept)
    assert weight_fingerprint(same) == original
    assert weight_fingerprint(model.bfloat16()) != original
