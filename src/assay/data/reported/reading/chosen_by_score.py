"""Whether a checkpoint, seed or setting was chosen by the scores that are then reported."""

import re

from assay.data.reported.reading.draft import Draft
from assay.data.reported.reading.sizes import number, sentences
from assay.data.reported.reading.stated_claims import Known
from assay.data.reported.reading.vocabulary import NOT_TEST
from assay.data.reported.reported_record import Search

CHOSEN = re.compile(
    r"(?<![a-z])(?:chose|choose|chosen|select(?:ed|ing|ion)?|pick(?:ed|ing|s)?|kept|keep|tuned?"
    r"|tuning|swept|best(?:-performing)?|highest|peak(?:ed)?|top|max(?:imum)?"
    r"|early[- ]stopp\w*)(?![a-z])|选|挑|最好|最佳|最高|最优|调参|调了",
    re.I,
)
POINTS = re.compile(
    r"(?<![a-z])(?:checkpoints?|ckpts?|steps?|epochs?|seeds?|prompts?|templates?|temperatures?"
    r"|learning rates?|lrs?|hyper-?param\w*|configs?|configurations?|settings?|variants?|runs?"
    r"|candidates?|sweep|grid|(?:over|during|throughout) training|snapshots?|thresholds?|models?)"
    r"(?![a-z])|检查点|步|轮|种子|提示词|模板|温度|学习率|超参|配置|权重|版本|候选|阈值|训练过程",
    re.I,
)
ON_TEST = re.compile(
    r"(?<![a-z])(?:by|on|using|with|from|per|according to|against|of|highest|best|its|their"
    r"|looking at"
    r"|maximi[sz]\w*|peak|top)\s+(?:[\w'-]+\s+){0,4}?(?:test|benchmark|evaluation|eval"
    r"|leaderboard)"
    r"(?:[ -]?(?:set|scores?|accuracy|acc|split|results?|items|questions|performance"
    r"|number))?(?![a-z])"
    r"|(?<![a-z])test[ -](?:set|scores?|accuracy|acc|split|performance)"
    r"|测试(?:集|分|得分|准确率|成绩|结果|题|上)|评测(?:集|分|得分|结果|成绩)",
    re.I,
)
ON_DEV = re.compile(
    r"(?<![a-z])(?:dev(?:elopment)?|val(?:id(?:ation)?)?|calibration|tuning split"
    r"|separate (?:split|set))(?![a-z])|验证|开发集",
    re.I,
)
BEST_OF = re.compile(
    r"(?<![a-z])(?:best|max(?:imum)?|highest|top)[- ](?:score |result |accuracy |value |number )?"
    r"(?:of|over|across|out of|among)[- ](?:the |our |all )?(?:\d+|two|three|four|five|six"
    r"|seven|eight"
    r"|nine|ten|twelve) (?:\w+ )?(?:seeds|runs|checkpoints|ckpts|trials|attempts|samplings"
    r"|repeats)"
    r"|(?:\d+|[两三四五六七八九十])\s*(?:个|次|组|轮)(?:随机)?(?:种子|检查点|运行|实验|重复"
    r"|结果|权重)?"
    r"[^，。]{0,8}(?:最好|最高|最佳|最优)",
    re.I,
)
"""The best of several results is reported, whatever it was measured on."""
NOT_CHOSEN = re.compile(
    r"(?<![a-z])(?:not|never|n't|nothing|none|without|rather than|instead of)\s+(?:\w+\s+){0,4}"
    r"(?:test|select\w*|pick\w*|chos\w*|tun\w*|look\w*|peek\w*|used?|touch\w*|consult\w*)(?![a-z])"
    r"|(?<![a-z])no (?:\w+ )?(?:selection|tuning|peeking|checkpoint selection|choice)"
    r"|in advance|beforehand"
    r"|pre-?regist\w*|untouched|only once|exactly once|once,? at the end|before (?:any|the"
    r"|looking|seeing|opening)"
    r"|(?:没有|并?未|从未|不)(?:[^，。]{0,8})(?:测试|挑|选|看|调)|事先|预先|(?:只"
    r"|仅)[^，。]{0,6}一次|最后一[个步轮]",
    re.I,
)
COUNT = re.compile(
    r"(?<![\d.])(\d{1,3}|two|three|four|five|six|seven|eight|nine|ten|twelve)\s*(?:个|组"
    r"|次)?\s*(?:\w+ )?"
    r"(?:checkpoints|ckpts|seeds|prompts|epochs|configs|configurations|settings|variants"
    r"|runs|candidates"
    r"|templates|learning rates|snapshots|trials|models|检查点|种子|提示词|配置|候选|版本"
    r"|权重|模板|学习率)",
    re.I,
)


BY_TEST = re.compile(
    r"(?:by|using|according to|based on|highest|best|maximi[sz]\w*|peak|top)\s+(?:the |its "
    r"|their |our )?"
    r"(?:test|benchmark)|(?:按|根据|依|以|用)[^，。]{0,6}测试|测试[^，。]{0,8}(?:最高|最好"
    r"|最佳|选|挑)",
    re.I,
)
"""The test as what chose, where the choice is elsewhere said to be made by other scores."""


SWEPT = re.compile(
    r"(?<![a-z])(?:checkpoints?|ckpts?|steps?|epochs?|seeds?|prompts?|templates?|temperatures?"
    r"|learning rates?|lrs?|configs?|configurations?|sweep|grid|snapshots?|thresholds?)(?![a-z])"
    r"|检查点|第?\s*\d*\s*[步轮]|种子|提示词|模板|温度|学习率|超参|权重|阈值",
    re.I,
)
BEST = re.compile(
    r"(?<![a-z])(?:best|highest|peak\w*|top|max(?:imum)?|tops|strongest|by|according to)(?![a-z])"
    r"|最好|最佳|最高|最优|峰值|按|根据|依据",
    re.I,
)
TAKEN = re.compile(
    r"(?<![a-z])(?:releas\w+|ship\w*|report\w*|keep|kept|pick\w*|select\w*|choos\w+|chose\w*"
    r"|us(?:e|ed|ing)|go(?:es|ing)? (?:with|out)|went with|tak(?:e|en|ing)|took|deploy\w*"
    r"|publish\w*"
    r"|promot\w+|submit\w*|final|headline|model card|quote\w*)(?![a-z])"
    r"|发布|上线|选|挑|采用|定为|定稿|交付|上报|报告|汇报|取|用它|最终|对外|提交|写进",
    re.I,
)
"""That the best point of several is the one that is reported."""


def _on_dev(text: str) -> bool:
    """Whether a log says somewhere that it chose by other scores than those of the test."""
    return any(
        ON_DEV.search(s) and CHOSEN.search(s) for line in text.splitlines() for s in sentences(line)
    )


def read_choice(draft: Draft, known: Known, text: str, line: int, subject: str) -> None:
    """Add the choice of a run by the reported scores; `subject` is the run of a note."""
    if NOT_CHOSEN.search(text) or not (CHOSEN.search(text) or TAKEN.search(text)):
        return
    benchmark = any(not NOT_TEST.search(n.name) for n in known.cells.find(text))
    swept = sum(bool(SWEPT.search(name)) for name in draft.run_names()) > 2
    taken = SWEPT.search(text) and BEST.search(text) and TAKEN.search(text)
    on_test = (POINTS.search(text) and ON_TEST.search(text)) or (taken and (benchmark or swept))
    if on_test and _on_dev(draft.text) and not (BY_TEST.search(text) or (taken and benchmark)):
        return
    if ON_DEV.search(text) or not (on_test or BEST_OF.search(text)):
        return
    runs = draft.run_names()
    named = [n.name for n in known.named(text) if n.name != known.control]
    trained = [name for name in runs if name != known.control]
    chosen = next(iter([*named, *([subject] if subject else []), *trained[::-1]]), "")
    match = COUNT.search(text)
    points = number(match[1]) if match else None
    if chosen:
        found = Search(chosen=chosen, on="test", points=points or None, line=line)
        if all(found.chosen != other.chosen for other in draft.parts.get("searches", ())):
            draft.add("searches", found)
