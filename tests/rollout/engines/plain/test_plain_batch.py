"""A served model of the plain path answers as it is sampled; one failure concerns one request."""

from pathlib import Path

import pytest
from benchmarks.families import tiny_family

from assay.rl.policy import SampleKey, Sampling
from assay.rollout.engines.batcher import Batcher, SamplingJob
from assay.rollout.engines.plain_sampler import PlainSampler
from assay.serve.server import opened
from tests.models.folders import tiny_tokenizer

ENDS = frozenset(range(3))
KEY = SampleKey(0, "prompt 0", 0)


@pytest.mark.parametrize("family", ["gemma3_text", "rwkv"])
def test_requests_get_what_the_sampler_draws(family: str) -> None:
    model = tiny_family(family)
    jobs = [
        SamplingJob(tuple(range(40, 40 + n)), KEY, Sampling(temperature, 10 + n))
        for n, temperature in ((3, 0.0), (9, 1.0), (5, 1.0))
    ]
    batcher = Batcher(PlainSampler(model, ENDS))
    for job in jobs:
        batcher.submit(job)
    turns = [job.done.result(60) for job in jobs]
    batcher.close()
    for job, turn in zip(jobs, turns, strict=True):
        [alone] = PlainSampler(model, ENDS).sample([job.context], [KEY], job.sampling)
        assert (turn.actions, turn.ended) == (alone.actions, alone.ended)


def test_assay_serve_opens_models_of_both_paths(tmp_path: Path) -> None:
    for family in ("gemma3_text", "rwkv"):
        tiny_family(family).save_pretrained(tmp_path / family)
        tiny_tokenizer().save_pretrained(tmp_path / family)
        with opened(tmp_path, f"path:{family}", "auto") as served:
            assert isinstance(served.sampler, PlainSampler)
            assert served.context_tokens >= 64
