"""The path of a GPU, as far as it can be followed without one: calls, their order, and what vLLM's
own classes read of them."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from assay.engines import register
from assay.engines.environments import ask, installed
from assay.engines.register import EngineOpening, VllmEngine

STATE = {"model.norm.weight": torch.ones(3), "lm_head.weight": torch.ones(2, 3).bfloat16()}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What vLLM's process is asked."""
    seen: list[dict[str, Any]] = []
    cuda = SimpleNamespace(
        synchronize=lambda: None,
        empty_cache=lambda: None,
        ipc_collect=lambda: None,
        current_device=lambda: 1,
        get_device_properties=lambda device: SimpleNamespace(uuid=f"GPU-{device}"),
    )
    monkeypatch.setattr(torch, "cuda", cuda)
    monkeypatch.setattr(register, "reduce_tensor", lambda t: (None, (t.dim(), "handle")))
    monkeypatch.setattr(VllmEngine, "ask", lambda self, do, **more: seen.append({"do": do, **more}))
    return seen


def engine() -> VllmEngine:
    nothing: Any = None
    return VllmEngine(EngineOpening("model", "bfloat16", "cuda"), nothing, Path(), Path())


def test_an_engine_sleeps_once_and_wakes_with_the_weights_before_its_cache(asked) -> None:
    own = engine()
    own.load(STATE)
    own.owner = "a stage"
    own.sleep()
    own.sleep()
    assert own.owner is None
    own.load(STATE)
    done = [(each["do"], each.get("part")) for each in asked]
    wake = [("wake", "weights"), ("receive", None), ("wake", "kv_cache")]
    assert done == [("receive", None), ("sleep", None), *wake]


def test_it_is_started_on_the_gpu_of_the_trainer(asked, monkeypatch) -> None:
    for visible, expected in (("", "1"), ("4,6", "6")):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert register._surroundings("cuda")["CUDA_VISIBLE_DEVICES"] == expected


@pytest.mark.slow
@pytest.mark.skipif(installed("vllm") is None, reason="assay engines add vllm")
def test_vllm_reads_of_a_hand_over_what_was_meant(asked) -> None:
    engine().load(STATE)
    update = asked[0]["update"]
    script = Path(__file__).with_name("transfer_in_vllm.py")
    answer = ask("vllm", script, {"init": {"packed": False}, "update": update})
    workers = ("init_weight_transfer_engine", "start_weight_update", "update_weights")
    assert answer["called"] == [*workers, "finish_weight_update"]
    assert answer["known"] and not answer["packed"] and answer["names"] == [*STATE]
    assert answer["handles"] == [{"GPU-1": [1, "handle"]}, {"GPU-1": [2, "handle"]}]
    assert update["dtype_names"] == ["float32", "bfloat16"] and update["shapes"] == [[3], [2, 3]]
