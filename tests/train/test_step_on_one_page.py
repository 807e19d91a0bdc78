"""`examples/grpo_step.py` makes the update that the training loop makes, and stays one page."""

import copy

import torch
from examples import grpo_step
from transformers import LlamaConfig, LlamaForCausalLM

from assay.data.renderings.rendering import Renderer
from assay.data.row import Message, Row
from assay.data.splits import Fixed
from assay.models.precision import choose_precision
from assay.rl.objectives import GrpoObjective
from assay.rollout.policies.language import LanguagePolicy
from assay.train.checkpoint import TrainState
from assay.train.grpo import Grpo
from assay.train.loop import LoopSettings, train
from assay.train.sampled_groups import PromptStream, SingleTurn
from tests.data.chat import tokenizer
from tests.size import ROOT, code_lines
from tests.tiny import SIZES
from tests.train import toys

RATE = 0.1


def test_one_step_on_one_page_gives_the_weights_of_the_loop(monkeypatch):
    renderer = Renderer(tokenizer("qwen3"), "template")
    ends = frozenset({renderer.end_token})
    texts = [chr(ord("a") + n) for n in range(4)]
    monkeypatch.setattr(
        grpo_step, "reward", lambda text, answer: toys.Reward(float(len(text) % 3 == 0))
    )
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**{**SIZES, "vocab_size": len(renderer.tokenizer)}))
    precision = choose_precision("fp32", "cpu")
    policies = [LanguagePolicy(copy.deepcopy(model).train(), precision, ends) for _ in range(2)]
    before = [p.detach().clone() for p in policies[0].module.parameters()]
    # Plain descent: the first step of AdamW hides the size of a gradient.
    optimizers = [torch.optim.SGD(p.module.parameters(), lr=RATE) for p in policies]
    grpo_step.step(policies[0], renderer, optimizers[0], [(text, "") for text in texts])

    rows = tuple(Row(text, (Message("user", text),)) for text in texts)

    def decode(actions):
        return renderer.tokenizer.decode(actions, skip_special_tokens=True)

    source = SingleTurn(
        {row.id: renderer.prompt(row.messages) for row in rows},
        grpo_step.SAMPLING,
        grpo_step.SEED,
        lambda pairs: [grpo_step.reward(said.text, "") for _, said in pairs],
        decode,
    )
    stream = PromptStream(rows, source, 4, grpo_step.GROUP, 0, order=Fixed((0, 1, 2, 3)))
    settings = toys.settings(
        aggregation="seq_mean_token_mean", drop=False, max_tokens=grpo_step.SAMPLING.max_tokens
    )
    method = Grpo(stream, settings, GrpoObjective(), decode)
    loop = LoopSettings(1, RATE, clip_norm=1.0)
    train(policies[1], method, optimizers[1], TrainState(), loop, toys.MemoryRecorder())

    pages, loops = ([*policy.module.parameters()] for policy in policies)
    assert all(map(torch.equal, pages, loops))
    assert not all(map(torch.equal, pages, before))


def test_one_step_stays_one_page():
    page = (ROOT / "examples" / "grpo_step.py").read_text(encoding="utf-8")
    assert page.count("\n") <= 150 and code_lines(page) <= 100
