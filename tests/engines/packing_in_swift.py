"""Runs in ms-swift's environment: the packs that its data set makes of rows of some sizes."""

import json
import sys

from swift.dataset.packing import PackingDataset  # type: ignore[import-not-found]


class Answers(list):
    """The queue that the packing writes to."""

    put = list.append


request, answers = json.load(sys.stdin), Answers()
PackingDataset.create_packed_idx(0, 0, request["sizes"], answers, request["most"], "binpack")
packs = [[place for place, _ in pack] for _, found, _ in answers for pack in found]
print(json.dumps(packs))
