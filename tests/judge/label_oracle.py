"""Records what other tools say of labels and verdicts, for `test_label_agreement`.

Run where they are installed, in an environment of its own:
`pip install ppi-python==0.2.3 scikit-learn==1.9.1 && python tests/judge/label_oracle.py`.
"""

import json
from pathlib import Path

import numpy as np
import statsmodels.api as sm
from ppi_py import ppi_mean_ci, ppi_mean_pointestimate  # type: ignore[import-not-found]
from scipy import stats
from sklearn.metrics import cohen_kappa_score  # type: ignore[import-not-found]

FILE = Path(__file__).with_suffix(".json")
LEVELS = (1, 2, 3, 4, 5)


def corrected(labels, beside, rest):
    """The power-tuned mean with its intervals at 95 and 80 % by ppi_py."""
    given = [np.array(each, float) for each in (labels, beside, rest)]
    return {
        "labels": labels,
        "beside": beside,
        "rest": rest,
        "value": float(np.squeeze(ppi_mean_pointestimate(*given))),
        "intervals": {
            str(level): [float(np.squeeze(end)) for end in ppi_mean_ci(*given, alpha=1 - level)]
            for level in (0.95, 0.8)
        },
    }


def means(random):
    """Judges that are good, harsh, random, wrong way round, and finer than the labels."""
    found = {}
    for name, count, others in (("good", 24, 80), ("few", 9, 31)):
        labels = random.integers(0, 2, count + others)
        seen = np.where(random.random(count + others) < 0.85, labels, 1 - labels)
        split = labels[:count].tolist(), seen[:count].tolist(), seen[count:].tolist()
        found[name] = corrected(*split)
    wrong = [1 - each for each in found["good"]["beside"]], [1 - x for x in found["good"]["rest"]]
    found["wrong way round"] = corrected(found["good"]["labels"], *wrong)
    grades = random.integers(1, 6, 100) / 5
    noisy = np.round(np.clip(grades / 2 + 0.1 * random.standard_normal(100), 0, 1), 3)
    found["graded, compressed"] = corrected(
        grades[:30].tolist(), noisy[:30].tolist(), noisy[30:].tolist()
    )
    noise = np.round(random.random(100), 3)
    found["noise"] = corrected(grades[:30].tolist(), noise[:30].tolist(), noise[30:].tolist())
    return found


def agreements(random):
    """Kappa plain and weighted, ranks, and the partial correlation with length."""
    labels = random.integers(1, 6, 40)
    verdicts = np.clip(labels + random.integers(-1, 2, 40), 1, 5)
    characters = random.integers(10, 900, 40)
    score, known = (verdicts - 1) / 4, sm.add_constant((labels - 1) / 4)
    left = [sm.OLS(each, known).fit().resid for each in (score, np.log1p(characters))]
    right = [int(each >= 3) for each in labels], [int(each >= 3) for each in verdicts]
    return {
        "labels": labels.tolist(),
        "verdicts": verdicts.tolist(),
        "characters": characters.tolist(),
        "kappa": cohen_kappa_score(labels, verdicts, labels=LEVELS, weights="quadratic"),
        "ranks": float(stats.spearmanr(labels, verdicts).statistic),  # type: ignore[attr-defined]
        "length": float(stats.pearsonr(*left).statistic),  # type: ignore[attr-defined]
        "binary_kappa": cohen_kappa_score(*right),
    }


if __name__ == "__main__":
    random = np.random.default_rng(39)
    found = {"means": means(random), "agreements": agreements(random)}
    FILE.write_text(json.dumps(found) + "\n")
