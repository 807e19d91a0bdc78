"""A checkpoint behind OpenAI's HTTP interface."""
