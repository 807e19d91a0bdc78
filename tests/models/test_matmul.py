"""Products are the same by whichever library they are computed, values and gradients."""

import pytest
import torch
from torch import Tensor, nn

from assay.models import matmul
from assay.models.matmul import LEAST_SIDE, ProductSpeeds, batched, product, project


@pytest.fixture(params=["by oneDNN", "by torch"])
def library(request, monkeypatch):
    wanted = request.param == "by oneDNN"
    if wanted and not torch.backends.mkldnn.is_available():
        pytest.skip("this torch has no oneDNN")
    speed = 2.0 if wanted else 1.0
    monkeypatch.setattr(matmul, "product_speeds", lambda: ProductSpeeds(speed, speed, 0.0))
    return request.param


def numbers(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("frozen", [True, False])
def test_a_layer_and_its_gradients_are_those_of_float64(library, bias, frozen):
    layer = nn.Linear(20, 30, bias=bias).requires_grad_(not frozen)
    rows = numbers(50, 20).requires_grad_()
    pull = numbers(50, 30, seed=1)
    found = project(layer, rows)
    assert type(found.grad_fn).__name__.startswith("Project") == (library == "by oneDNN")
    leaves = [rows, *(p for p in layer.parameters() if p.requires_grad)]
    gradients = torch.autograd.grad(found, leaves, pull)
    exact = nn.Linear(20, 30, bias=bias).double()
    exact.load_state_dict(layer.state_dict())
    wide = rows.detach().double().requires_grad_()
    expected = exact(wide)
    torch.testing.assert_close(found.double(), expected, atol=1e-5, rtol=1e-5)
    wide_leaves = [wide, *(() if frozen else exact.parameters())]
    wanted = torch.autograd.grad(expected, wide_leaves, pull.double())
    for one, other in zip(gradients, wanted, strict=True):
        torch.testing.assert_close(one.double(), other, atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("transposed", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("inner", [7, LEAST_SIDE + 1])
def test_products_of_transposed_views_are_products(library, transposed, inner):
    left, right = numbers(3, 40, inner), numbers(3, inner, 50, seed=1)
    expected = left.double() @ right.double()
    if transposed[0]:
        left = left.transpose(1, 2).contiguous().transpose(1, 2)
    if transposed[1]:
        right = right.transpose(1, 2).contiguous().transpose(1, 2)
    torch.testing.assert_close(batched(left, right).double(), expected, atol=1e-4, rtol=1e-5)
    for one, other, whole in zip(left, right, expected, strict=True):
        torch.testing.assert_close(product(one, other).double(), whole, atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize(
    ("batches", "alone", "calls"), [(1.01, 1.01, 0), (1.01, 1.06, 1), (1.06, 1.06, 4)]
)
def test_onednn_computes_what_it_is_faster_at(monkeypatch, batches, alone, calls):
    if not torch.backends.mkldnn.is_available():
        pytest.skip("this torch has no oneDNN")
    seen, onednn = [], matmul.onednn
    monkeypatch.setattr(matmul, "product_speeds", lambda: ProductSpeeds(alone, batches, 0.0))
    monkeypatch.setattr(matmul, "onednn", lambda *given: seen.append(0) or onednn(*given))
    left, right = numbers(3, 4, LEAST_SIDE), numbers(3, LEAST_SIDE, 5)
    batched(left, right)
    product(left[0], right[0])
    assert len(seen) == calls


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_types_and_autocast_are_left_to_torch(library, dtype):
    layer = nn.Linear(4, 5, dtype=dtype)
    rows = numbers(3, 4, dtype=dtype)
    assert torch.equal(project(layer, rows), layer(rows))
    single, rows = nn.Linear(4, 5), numbers(3, 4)
    with torch.autocast("cpu", torch.bfloat16):
        assert project(single, rows).dtype == torch.bfloat16


@pytest.fixture
def clock(monkeypatch, tmp_path):
    """A layer takes 2 s by torch in float32, 1 s a batch, 8 s in bf16, 4 s all by oneDNN."""
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path))
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"amx_bf16": True})
    seconds = iter([[2.0, 4.0], [1.0, 4.0], [2.0, 8.0]])

    def timed(*computations):
        for compute in computations:
            compute()
        return next(seconds)

    monkeypatch.setattr(matmul, "_seconds", timed)
    return seconds


def test_speeds_are_timed_once_on_a_machine_and_kept(clock):
    measured = ProductSpeeds(onednn=0.5, onednn_batches=0.25, bf16=0.25)
    assert matmul.product_speeds.__wrapped__() == measured
    assert next(clock, None) is None
    assert matmul.product_speeds.__wrapped__() == measured


def test_another_processor_is_timed_anew(clock, monkeypatch):
    matmul.product_speeds.__wrapped__()
    monkeypatch.setattr(matmul, "processor_name", lambda: "another one")
    with pytest.raises(StopIteration):
        matmul.product_speeds.__wrapped__()
