"""Records what scikit-learn says of labels and verdicts, for `test_label_agreement`.

Run where it is installed: `pip install scikit-learn==1.9.1 && python tests/judge/label_oracle.py`.
"""

import json
from pathlib import Path

FILE = Path(__file__).with_suffix(".json")
LEVELS = (1, 2, 3, 4, 5)

if __name__ == "__main__":
    from sklearn.metrics import cohen_kappa_score  # type: ignore[import-not-found]

    found = json.loads(FILE.read_text())
    labels, verdicts = found["labels"], found["verdicts"]
    halves = [[int(each >= 3) for each in values] for values in (labels, verdicts)]
    found["kappa"] = cohen_kappa_score(labels, verdicts, labels=LEVELS, weights="quadratic")
    found["binary_kappa"] = cohen_kappa_score(*halves)
    FILE.write_text(json.dumps(found) + "\n")
