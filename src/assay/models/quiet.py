"""Keeps Transformers' progress bars and load reports off the terminal while Assay loads a model.

Their content is not lost: what a load report would say, `load` checks and raises.
"""

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
