"""GSM8K: `{"question", "answer"}`; the answer ends in `#### number`, which the task takes apart."""

from assay.data.hashing import content_id
from assay.data.raw_record import Record
from assay.data.row import Message, Row


def parse(record: Record) -> Row:
    """A row whose gold is the whole answer text; `extra` holds the raw fields but the id.

    Raises DataError.
    """
    question = record.need("question", str)
    answer = record.need("answer", str)
    source = record.maybe("id", str, int)
    return Row(
        id=str(content_id(record.value) if source is None else source),
        messages=(Message("user", question), Message("assistant", answer)),
        gold=answer,
        origin=record.origin,
        extra=record.others("id"),
    )
