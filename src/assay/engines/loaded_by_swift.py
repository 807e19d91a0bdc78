"""Answers with what ms-swift makes of a file of its rows: token ids and trained positions of a row
with an answer, and what is asked of a row without.

Run in ms-swift's environment, without Assay: its data set loader reads the file, and its template,
with the arguments that `swift sft` and `swift rlhf` give it, encodes each row.
"""

import json
import sys
from contextlib import redirect_stdout
from pathlib import Path

with redirect_stdout(sys.stderr):
    from swift.dataset import load_dataset
    from swift.model import get_processor
    from swift.template import get_template


def encoded(request):
    """Tokens of each row, and which are trained; of one without an answer its prompt."""
    rows, _ = load_dataset([request["file"]], split_dataset_ratio=0.0, load_from_cache_file=False)
    processor = get_processor(request["model"], model_type="qwen3")
    # Rows that are the text of a rendering are meant for --add_non_thinking_prefix false.
    with Path(request["file"]).open(encoding="utf-8") as file:  # the loader drops the column
        adds = "assay" not in json.loads(file.readline())
    kind = request["template"]
    template = get_template(processor, template_type=kind, add_non_thinking_prefix=adds)
    made = []
    for row in rows:
        asks = row["messages"][-1]["role"] != "assistant"
        template.set_mode("transformers" if asks else "train")
        each = template.encode(row)
        tokens = each["input_ids"]
        trained = None if asks else [label != -100 for label in each["labels"]]
        made.append({"prompt": tokens} if asks else {"tokens": tokens, "trained": trained})
    return made


if __name__ == "__main__":
    with redirect_stdout(sys.stderr):
        answer = encoded(json.load(sys.stdin))
    print(json.dumps(answer))
