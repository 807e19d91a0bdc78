"""Generates the manual's page of the translation tables.

`python -m assay.trainers.reference > docs/trainers.md` updates the page.
"""

from collections.abc import Iterator

from assay.trainers.register import TRAINERS, Trainer
from assay.trainers.translation import Row, always

INTRODUCTION = """\
# Other trainers

A stage of an experiment file can be trained by TRL, verl or ms-swift; the run records, gates,
judges and reports it like one that Assay trains:

```toml
[stage.rl]
method  = "grpo"                                 # or sft (TRL, ms-swift)
trainer = "trl"                                  # verl, swift; omitted: assay
allow   = ["importance"]                         # settings that the tool may do without
```

```sh
assay engines add trl                            # or verl, swift: an environment of its own
assay check FILE                                 # what is refused, and what differs
assay run FILE
```

- **While it trains** its metrics, samples and checkpoints are recorded as they come; its log is
  `trainers/STAGE/log` in the run's folder. `cpu_seconds` and `peak_memory_mb` of a step are those
  of all its processes, the reward's too (memory on a CPU alone, looked at once a second).
- **It works on this machine**, and nothing of it outlives the run. Where it dies, the run ends with
  exit code 1 and the end of its log; `assay resume` goes on.
- **Resumed**, it goes on from the newest checkpoint that the run has; what it did behind that is
  repeated, and recorded once. TRL and ms-swift draw the random numbers of an unbroken training;
  verl on a CPU draws others.
- **Guards** stop it after the step in which they fire, and keep the newest checkpoint.

Elsewhere, such as on your cluster, it is trained from a folder:

```sh
assay export FILE --to trl DIR                   # --stage NAME, where there are several
bash DIR/run.sh                                  # PYTHON=..., ASSAY_PYTHON=...
```

| file | holds |
|---|---|
| `data/` | the rows in the tool's format, in the order of the stage's visits, all epochs |
| `config.yaml` | the tool's configuration; every key of it that acts, as it means what Assay does |
| `reward.py`, `reward.json`, `rows.jsonl` | the stage's own reward, judged by Assay |
| `run.sh`, `slurm.sh`, `ray.sh` | one machine; a Slurm job; a Ray cluster (verl) |
| `model/` | the start, where it is no model of the hub, or has dropout, which is 0 here |
| `translation.json` | every setting as it was translated, and what differs |

The folder needs the tool, and `assay-lab[train]` installed there or in the Python that
`ASSAY_PYTHON` names. `run.sh` refuses another version of the tool, but for `UNTESTED=1`. Where
there is no GPU, it trains on the CPU; verl then samples with Transformers (`verl_on_cpu.py`).

- **Rows** are the text that the model's own template renders as the stage does. The tool loads
  them before the folder is there, and its tokens are compared with Assay's; a difference refuses
  the export. `--unproven` leaves that out, and the README says so.
- **A setting without counterpart** is refused by name; `allow` in the stage, or `--allow KEY`, does
  without it and lists it as a difference.
- **Another definition** of a setting is listed without being asked. In the tables below a key
  without one means the same. They have every key of the tool: a setting's, one that is fixed
  because Assay has nothing like it, one that is off with another, one without effect on what is
  learned.
- **A stage that starts from another** needs it trained before an export:
  `--set 'stage.grpo.start="run:NAME/ID@sft.last"'`.
- **Rewards** that ask helper models, and rows that are dialogues, are refused: the tools sample
  one answer, and only a run opens helper models. An abstention stops verl and ms-swift, where a 0
  would be false; TRL leaves it out.

Measured: fed a tool's own answers, Assay's 24 updates end at TRL's weights but for 8.5e-5 of the
way ([results](results/trainers.md)).

## Runs made elsewhere

```sh
assay import DIR --from trl                      # or verl, swift; exported, or made without Assay
assay import DIR --from trl --model OWNER/NAME   # the base model, where the folder does not say it
```

A run of the lab comes of it: metrics, samples, checkpoints and settings, to be shown, compared,
evaluated (`assay eval NAME@rl.last`) and started from (`run:NAME@rl.last`). Nothing is left where a
checkpoint cannot be opened; one that is not whole is left out by name. Each seed is a run of its
own, and several may have one NAME.

- **`assay resume NAME` measures** the reporting evaluations of the exported file, at the base and
  at the stage's own checkpoints, and makes up for what a kill left.
- **Guards, milestones and evaluations that select** belong to a training: they are named as not
  asked, by the command and on the page.

| | exported folder | made without Assay |
|---|---|---|
| metrics | all | all; of TRL up to the last checkpoint |
| samples | with rows, tokens, parts | text, prompt, reward, where they were logged |
| advantages | of TRL and ms-swift | of TRL and ms-swift |
| settings | all; what run.sh was told else, listed | the tables backwards; all else, listed |
| checkpoints | without optimizer | without optimizer |
| unknown | the machine | data, reward, rendering, start, machine, what no file tells |

Each checkpoint is proven: a probe's logits by Transformers or peft, which open the tool's folder,
and by what the lab stored agree but for rounding in fp32, or the import is refused and the first
layer that differs is named. An adapter that peft opens and no LoRA here holds (patterns of ranks
or alphas, pissa, saved heads or norms, token rows, biases, other kinds) is merged by peft and
taken over as whole weights, which the import says. Refused are what peft cannot merge, what it
opens as another model each time (`pissa_niter_N`) and settings that this peft does not know. A
folder that is a checkpoint itself, or was saved at the end, gives its weights; so does verl's
`global_step_N`. Whole weights are read by the config beside them.

Where a run started is told where the tool's configuration tells it (`adapters`, `lora_adapter_path`
and what was resumed), and else unknown. Of an exported SFT stage the loss of step 1 proves it, or
it is unknown: as far as four decimals and bf16 may move that loss. Where none can, as of GRPO, the
import says so.

Log-probs are in no tool's files. Completions are logged by `log_completions` (TRL, ms-swift) and
`trainer.rollout_data_dir` (verl); their rows are named by the prompt. verl's shards are merged by
verl, in their own precision: its merger rounds to bfloat16, which would lose a small change.

A difference that is listed is a confound of a comparison (`stages.NAME.unlike.KEY`). The loss of
sft is `nll` where it is the mean of -log p over the trained tokens; with another loss, label
smoothing, NEFTune, a router's auxiliary loss, dropout, or where the configuration is not there, it
is `trl/loss` or `swift/loss`, and that of held-out rows `trl/eval_loss`.

What is unknown equals no other run's, so that a comparison lists it (`--allow`). A folder of TRL is
its `output_dir`; of ms-swift too, with its version; of verl its `trainer.default_local_dir`, with
the lines of `trainer.logger = ["file"]` and Hydra's `config.yaml` where verl puts them, or
`--log`, `--config`. The tool's whole configuration stands in the manifest, without secrets.

Versions: {VERSIONS}. Made by `python -m assay.trainers.reference > docs/trainers.md`.
"""


def page() -> str:
    """The whole page."""
    packages = ", ".join(trainer.package for trainer in TRAINERS.values())
    parts = [INTRODUCTION.replace("{VERSIONS}", packages)]
    for trainer in TRAINERS.values():
        parts += [f"## {trainer.title}\n", "\n".join(table(trainer)) + "\n"]
        parts += ["\n".join(metrics(trainer)) + "\n"]
    return "\n".join(parts)


def metrics(trainer: Trainer) -> Iterator[str]:
    """What the tool's metrics are called here; others keep their name behind the tool's."""
    yield f"| {trainer.title}'s metric | Assay's | how | what differs |"
    yield "|---|---|---|---|"
    for each in trainer.metrics:
        ours = f"`{each.ours}`" if each.ours else ""
        yield f"| `{each.theirs}` | {ours} | {each.how if ours else ''} | {each.unlike} |"


def table(trainer: Trainer) -> Iterator[str]:
    """The rows of all its methods; one that is not of each says of which."""
    yield f"| Assay | {trainer.title} | how | what differs |"
    yield "|---|---|---|---|"
    tables = {
        m: [each for row in rows for each in shown(row)] for m, rows in trainer.tables.items()
    }
    seen: set[tuple[str, str, str]] = set()
    for method, rows in tables.items():
        for row in rows:
            known = face(row)
            if known not in seen:
                seen.add(known)
                alone = [m for m, other in tables.items() if known in map(face, other)]
                yield line(row, "" if len(alone) == len(tables) else f" ({method})")


def shown(row: Row) -> Iterator[Row]:
    """The lines of a row: itself, or one for each reason why keys of the tool do not act."""
    if not row.idle and not row.gated:
        yield row
    for why, keys in row.idle.items():
        yield Row("(without effect)", ", ".join(keys.split()), why)
    for switch, keys in row.gated.items():
        yield Row("(off)", ", ".join(keys.split()), f"acts where `{switch}` is another")


def face(row: Row) -> tuple[str, str, str]:
    """What the page shows of a row."""
    return row.key, row.theirs, row.how


def line(row: Row, method: str) -> str:
    """One row of the page."""
    key = row.key if row.key.startswith("(") else f"`{row.key}`"
    theirs = ", ".join(f"`{each}`" for each in row.theirs.split(", ")) if row.theirs else ""
    unlike = "; ".join(
        ("refused: " if each.refused else "" if each.when is always else "where it acts: ")
        + each.what
        for each in row.unlike
    )
    cells = (key + method, theirs, row.how, unlike)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    print(page(), end="")
