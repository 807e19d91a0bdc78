"""TRL's own preparation of conversations: `SFTTrainer` reads, writes by the template and tokenizes.

Runs in an environment of TRL's own, by `benchmarks.data`, and imports nothing of Assay. Timed are
`load_dataset` and what the trainer's `_prepare_dataset` does, with so many processes of `datasets`.
"""

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from datasets import load_dataset  # type: ignore[import-not-found]
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer  # type: ignore[import-not-found]

COSTS: list[tuple[float, float]] = []


def timed(work: Any, *values: Any, **named: Any) -> Any:
    """What a call gives; its CPU-seconds, children included, and seconds join COSTS."""
    before, begin = sum(os.times()[:4]), time.monotonic()
    made = work(*values, **named)
    COSTS.append((sum(os.times()[:4]) - before, time.monotonic() - begin))
    return made


def main(model: str, file: str, template: str, processes: str) -> None:
    """Print the costs, and the fewest and most tokens, as JSON."""
    prepare = SFTTrainer._prepare_dataset
    SFTTrainer._prepare_dataset = lambda *values, **named: timed(prepare, *values, **named)
    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.chat_template = Path(template).read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        rows = timed(load_dataset, "json", data_files=file, split="train", cache_dir=folder)
        more = {"max_length": None, "use_cpu": True, "bf16": False, "report_to": "none"}
        trainer = SFTTrainer(
            AutoModelForCausalLM.from_pretrained(model),
            SFTConfig(folder, dataset_num_proc=int(processes), disable_tqdm=True, **more),
            train_dataset=rows,
            processing_class=tokenizer,
        )
        counts = [len(ids) for ids in trainer.train_dataset["input_ids"]]
    read, prepared = ({"cpu_s": cpu, "s": wall} for cpu, wall in COSTS)
    print(json.dumps({"read": read, "prepared": prepared, "tokens": [min(counts), max(counts)]}))


if __name__ == "__main__":
    main(*sys.argv[1:])
