"""Silences messages of libraries that concern only their own use by Assay.

No content is lost: `load` checks and raises what Transformers' load report would list, and peft's
use of an old name does not concern the user. Any other warning is shown.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from transformers.utils import logging


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Only errors are logged and no bars are drawn inside; the former settings return after."""
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


@contextmanager
def old_names_of_peft() -> Iterator[None]:
    """peft 0.21 asks Transformers 5.23 for `is_activation_checkpointing` by its former name."""
    with warnings.catch_warnings():
        said = "`is_gradient_checkpointing` is deprecated"
        warnings.filterwarnings("ignore", said, FutureWarning)
        yield
