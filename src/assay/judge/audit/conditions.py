"""What the settings of a reported run say: which are factors, and whether it was trained at all.

A base model against a trained one differs in everything about training, and that is what such a
comparison is about; how the two were measured must still agree.
"""

import re
from collections.abc import Iterator, Mapping

from assay.data.reported.reported_record import Reported, Run
from assay.judge.confounds import ABSENT, Confound, differences

BOOKKEEPING = re.compile(
    r"(?:^|[_ -])(?:seeds?|dates?|day|hours?|minutes?|duration|runtime|gpus?|device|machine|host"
    r"|cost|price|notes?|remarks?|comments?|commit|url|link|author|std|sd|stderr|se|ci|status"
    r"|repeats?)(?:$|[_ -])|^(?:id|job|time|path|dir|folder|file|log|pass|checkpoint|ckpt|#)$"
    r"|种子|日期|时间|耗时|用时|时长|备注|说明|机器|显卡|成本|费用|路径|编号|状态|标准差",
    re.I,
)
"""Settings that say where and when, or how often, and are no factor of a result."""
MEASURED = re.compile(
    r"temperature|top[_ -]?[pk]|max[_ -]?(?:new[_ -]?)?tokens|prompt|template|rendering|shots?"
    r"|decoding|sampling|samples|metric|checker|judge|grader|scorer|harness|split|version|eval"
    r"|benchmark|test[_ -]?set|thinking|提示|模板|温度|采样|解码|评测|评分|指标|样本|测试",
    re.I,
)
"""Settings of the measurement, which a base model has as well."""
UNTRAINED = re.compile(
    r"^(?:base|baseline|base[_ -]?model|untrained|raw|original|none|no[_ -]?training|not trained"
    r"|zero[_ -]?shot|pre[_ -]?trained|instruct|off[_ -]the[_ -]shelf|未训练|不训练|原始|原始模型"
    r"|基座|基座模型|基线|基线模型|基础模型|底座|无|无训练)$",
    re.I,
)
"""Names and values of a run that was not trained."""
TRAINING = re.compile(
    r"^(?:method|training|trainer|train|algorithm|algo|stage|objective|recipe|adapt|adapter|data"
    r"|train[_ -]?(?:data|set|rows)|lr|learning[_ -]?rate|epochs?|steps?|batch(?:[_ -]?size)?|beta"
    r"|kl\w*|训练|训练方法|方法|算法|阶段|训练数据|数据|学习率|轮数|步数|批大小)$",
    re.I,
)
"""Settings that a trained run has a value of."""
NOTHING = ("", "-", "--", "–", "—", "/", "none", "n/a", "na", "null", "no", "无", "0")


def same_value(first: object, second: object) -> bool:
    """Whether two values of a setting are the same, however they are written."""
    return plain_value(first) == plain_value(second)


def plain_value(value: object) -> object:
    """A value without what only its writing says: case, spaces, "10k" for 10000, "1e-5"."""
    text = " ".join(str(value).split()).casefold()
    match = re.fullmatch(r"([+-]?\d+(?:\.\d+)?(?:e[+-]?\d+)?)\s*([km%]?)", text.replace(",", ""))
    if match is None:
        return text
    return float(match[1]) * {"": 1.0, "%": 1.0, "k": 1e3, "m": 1e6}[match[2]]


def settings_of(report: Reported, run: Run) -> dict[str, object]:
    """What the report says of a run, here and elsewhere; its own table comes first."""
    known: dict[str, object] = {}
    said = (m.settings for m in report.mentions if m.of == run.name and m.cell is None)
    for settings in (run.settings, *said):
        known = {**settings, **known}
    return known


def factors(
    report: Reported, control: Run, run: Run, vary: tuple[str, ...] = ()
) -> tuple[Confound, ...]:
    """The settings that are known of both runs and differ, those under test apart.

    Where one of the two was not trained, what they were trained with is under test.
    """
    left, right = settings_of(report, control), settings_of(report, run)
    training = is_trained(report, control) != is_trained(report, run)
    return tuple(
        found
        for found in differences(left, right, vary)
        if ABSENT not in (found.control, found.other)
        and found.kind != "declared"
        and not same_value(found.control, found.other)
        and not BOOKKEEPING.search(found.path)
        and not (training and _of_training(found))
    )


def _of_training(found: Confound) -> bool:
    """Whether a base model and a trained one may differ in it: no measurement, or without value."""
    values = (str(value).strip().casefold() for value in (found.control, found.other))
    return not MEASURED.search(found.path) or any(value in NOTHING for value in values)


def about(report: Reported, control: Run, run: Run, vary: tuple[str, ...]) -> tuple[str, ...]:
    """What a comparison is about: what it varies, else training where one run had none."""
    training = is_trained(report, control) != is_trained(report, run)
    return ("training",) if training and not vary else vary


def is_trained(report: Reported, run: Run) -> bool:
    """Whether a run was trained: by what it says, else by its settings and its name."""
    if run.trained is not None:
        return run.trained
    values = list(_training(settings_of(report, run)))
    if values:
        return not all(value in NOTHING or UNTRAINED.match(value) for value in values)
    return not UNTRAINED.match(run.name.strip())


def _training(settings: Mapping[str, object]) -> Iterator[str]:
    """The values of the settings that name a training."""
    for key, value in settings.items():
        if TRAINING.match(key.strip()):
            yield " ".join(str(value).split()).casefold()
