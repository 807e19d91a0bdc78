"""Run in TRL's environment: losses and gradients of its GKDTrainer, and of its server trainer.

Reads `{"student", "teacher": folders, "ids", "attention", "labels": padded batches, "betas",
"tables": [...]}` as JSON and answers what TRL made of it; `python -m tests.train.test_gkd` records
the answer in `gkd_by_trl.json`.
"""

import json
import sys
import tempfile

import torch
from datasets import Dataset  # type: ignore[import-not-found]
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
from trl.experimental.gkd import GKDConfig, GKDTrainer  # type: ignore[import-not-found]
from trl.experimental.server_distillation import server_distillation_trainer as server  # type: ignore[import-not-found]


def trainer(asked, folder):
    """A GKDTrainer over both models, in fp32."""
    from tokenizers import Tokenizer, models

    words = Tokenizer(models.WordLevel({str(n): n for n in range(300)}, unk_token="0"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="0", eos_token="1")
    load = AutoModelForCausalLM.from_pretrained
    models_ = [load(asked[name], dtype=torch.float32) for name in ("student", "teacher")]
    args = GKDConfig(output_dir=folder, report_to=[], bf16=False, use_cpu=True, max_length=None)
    rows = Dataset.from_list([{"messages": [{"role": "user", "content": "1"}]}])
    given = {"args": args, "processing_class": tokenizer, "train_dataset": rows}
    return GKDTrainer(models_[0], models_[1], data_collator=lambda rows: rows, **given)


def of_models(asked):
    """Loss and norms of the gradients of a padded batch, for each beta."""
    names = {"input_ids": "ids", "attention_mask": "attention", "labels": "labels"}
    inputs = {ours: torch.tensor(asked[theirs]) for ours, theirs in names.items()}
    found = []
    with tempfile.TemporaryDirectory() as folder:
        made = trainer(asked, folder)
        for beta in asked["betas"]:
            made.beta = beta
            made.model.zero_grad()
            loss = made.compute_loss(made.model, dict(inputs))
            loss.backward()
            norms = {name: float(p.grad.norm()) for name, p in made.model.named_parameters()}
            found.append({"beta": beta, "loss": float(loss), "norms": norms})
    return found


def of_tables(asked):
    """Loss and gradient by the student's scores, for tables of both models' scores."""
    found = []
    for case in asked["tables"]:
        student = torch.tensor(case["student"], dtype=torch.float64, requires_grad=True)
        teacher = torch.tensor(case["teacher"], dtype=torch.float64)
        beta, warmth = case["beta"], case["temperature"]
        if case["top_k"]:
            loss = of_top_k(student / warmth, teacher / warmth, beta, case["top_k"])
        else:
            loss = GKDTrainer.generalized_jsd_loss(student, teacher, beta=beta, temperature=warmth)
        loss.backward()
        found.append({"loss": float(loss), "gradient": student.grad.tolist()})  # type: ignore[union-attr]
    return found


def of_top_k(student, teacher, beta, count):
    """As ServerDistillationTrainer with `loss_top_k` and `loss_add_tail`."""
    told, words = teacher.log_softmax(-1).topk(count)
    own = student.log_softmax(-1).gather(-1, words)
    mask = torch.ones_like(words, dtype=torch.bool)
    own, wider = server._add_tail_bucket(own, mask)
    told, _ = server._add_tail_bucket(told, mask)
    return server._jsd_divergence(own, told, beta, wider).sum() / len(student)


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    print(json.dumps({"models": of_models(asked), "tables": of_tables(asked)}))
