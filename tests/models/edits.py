"""Other values in the files of a model's folder."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors.torch import load_file, save_file
from torch import Tensor


def edit_json(file: Path, **changes: object) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


@contextmanager
def edited_weights(file: Path) -> Iterator[dict[str, Tensor]]:
    """The tensors of a file, into which they are written as they are left."""
    state = load_file(file)
    yield state
    save_file(state, file, metadata={"format": "pt"})
