"""Finds how results were made, as a log describes it: failures left out, causes of gains, choices.

A choice means that a checkpoint, seed or setting was selected by the scores that are reported. Each
fact has a small vocabulary; a sentence that names no run of the tables is skipped.
"""

import re

from assay.data.reported.reading import vocabulary
from assay.data.reported.reading.columns import setting_of
from assay.data.reported.reading.conclusions import (
    BETTER,
    CREDIT,
    CREDITED,
    GAINED,
    OTHER_METRIC,
    hedged,
)
from assay.data.reported.reading.draft import Draft
from assay.data.reported.reading.sizes import number, sentences
from assay.data.reported.reading.stated_claims import (
    Known,
    by_scores,
    read_gap,
    read_restated,
    read_signal,
)
from assay.data.reported.reading.vocabulary import NOT_TEST
from assay.data.reported.reported_record import Comparison, Metric, Reading, Search

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
"""Selection by test scores, in a text that elsewhere states selection by other scores."""


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


FAILURES = re.compile(
    r"time-?d?[ -]?outs?|pars(?:e|ing)|unpars\w*|refus\w*|invalid|malformed|error|crash\w*"
    r"|truncat\w*|no answer|unanswered|empty|fail\w*|exceed\w*|over-?long|kill\w*|abort\w*"
    r"|hung|did not (?:finish|return|parse|complete)|never (?:finished|returned)"
    r"|(?:step|time|token|turn) limit|hit the (?:limit|cap)|到上限|超时|解析|拒答"
    r"|无效|格式|报错"
    r"|出错|截断|崩溃|无答案|未作答|失败|空回复|超长|被杀|杀掉|中断|没跑完|未完成|没答",
    re.I,
)
LEFT_OUT = re.compile(
    r"(?<![a-z])(?:exclud\w*|skipp\w*|dropp\w*|remov\w*|left out|leav\w* out|discard\w*"
    r"|ignor\w*|filter\w* out|not counted|do(?:es)? not count|omitted|taken out"
    r"|thrown (?:away|out)|set aside|not part of|out of the denominator|not in the denominator"
    r"|(?:do(?:es)? not|don't|are not|were not|aren't|weren't) (?:enter|count\w*|includ\w*"
    r"|scor\w*))"
    r"(?![a-z])|没有?算|没计|移出|不进分母|不在分母|剔掉|剔除|不计入|排除|跳过|去掉|丢弃|不计|未计入|不算|去除"
    r"|忽略|不纳入|删去",
    re.I,
)
ANSWERED_ONLY = re.compile(
    r"of the (?:remaining )?\d[\d,]* (?:[a-z]+ )?(?:that|which|who) (?:\w+ )?(?:finish"
    r"|complet|pars|return"
    r"|answer|ran|ended|produced|did not|didn't)\w*"
    r"|(?:only|solely) (?:over|on|among|counting|count|of)? ?(?:the )?(?:\w+ )?(?:parsed"
    r"|parsable|parseable"
    r"|finished|valid|completed|answered|successful)"
    r"|(?:over|among|on|of) (?:the |all )?(?:parsed|parsable|parseable|finished|valid"
    r"|completed|answered)"
    r" (?:ones|items|answers|outputs|responses|tasks|episodes|runs|samples|rollouts|calls)"
    r"|(?:仅|只)(?:统计|计算|算|看|对)[^，。]{0,6}(?:成功|有效|完成|解析|跑完|返回|可解析)"
    r"|(?:按|以|在)[^，。]{0,8}(?:有效|可解析|跑完|完成|解析成功|返回)的?[^，。]{0,10}(?:算|计|为分母|上)",
    re.I,
)
"""A score of the items with an answer."""
COUNTED = re.compile(
    r"(?<![a-z])(?:not|never|no|nothing|none|nor|without)\s+(?:\w+\s+){0,3}(?:exclud|skipp"
    r"|dropp|remov|left out|discard|ignor|filter|omit)\w*"
    r"|(?:count\w*|scor\w*|treat\w*|mark\w*|grad\w*|kept) (?:as |in )?(?:\w+ )?(?:wrong"
    r"|incorrect|fail\w*|errors?|zero|0|misses)"
    r"|(?:没有|未|不|无)(?:被)?(?:剔除|排除|跳过|丢弃|去掉)|(?:算|记|计|判)(?:作|为"
    r"|成)?(?:错|0|零|失败)|按错|计入分母",
    re.I,
)
LONE = re.compile(
    r"(?<![A-Za-z0-9_.,/-])(?<!/ )\d{1,4}(?![A-Za-z0-9_/-]|[.,]\d|\s*(?:[%％/]|of|out of))"
)
"""A whole number that is part of no other."""
TRAINED_ON = re.compile(
    r"(?<![a-z])train(?:ing|ed)?(?![a-z])|rollouts?|训练|轨迹|数据集?清洗|数据中", re.I
)

WORKS = re.compile(
    r"(?:说明|证明|表明)(.{2,30}?)(?:有效|有用|起作用)|(?:shows?"
    r"|proves?) that (.{2,40}?) (?:works|helps"
    r"|is effective)",
    re.I,
)
FROM_TO = re.compile(
    r"\d\s*[%％]?(?:\s*[(（][^()（）]*[)）])?\s*(?:to|→|->|(?:走|升|涨|降|跌|变)?到|升至|降至)\s*\d",
    re.I,
)
RISES = re.compile(
    r"increas|(?<![a-z])ris(?:es?|ing)|(?<![a-z])grow|climb|(?:goes|going|went) up"
    r"|增加|上升|升高|增大|上涨|走高|变多|涨",
    re.I,
)
FALLS = re.compile(
    r"decreas|(?<![a-z])fall|(?<![a-z])drop|declin|shrink|(?:goes|going|went) down|lower and lower"
    r"|下降|降低|减小|下滑|走低|变少|降到|掉到",
    re.I,
)
READS: tuple[tuple[re.Pattern[str], Reading], ...] = (
    (re.compile(r"偏离|远离|moves? away|drift|diverg", re.I), "away"),
    (re.compile(r"靠近|接近|回到|moves? (?:back|closer|towards)|stays? close", re.I), "towards"),
    (
        re.compile(
            r"(?:模型|策略|model|policy)\S{0,4}\s*(?:在|is|are|keeps?)?\s*(?:持续"
            r"|不断)?(?:学习|学到|变好|进步"
            r"|learn|improv|getting better)"
            r"|越来越(?:好|干净|稳|准|强|可靠)|getting (?:better|cleaner|stronger|more reliable)"
            r"|(?:still|steadily|keeps?|is|are) improving|(?:keeps?|is|are|still) learning"
            r"|(?:policy|model|agent) (?:keeps?|is) (?:\w+ )?(?:succeed\w*|winning|solving)",
            re.I,
        ),
        "better",
    ),
    (
        re.compile(
            r"(?:模型|策略|model|policy)\S{0,4}\s*(?:在|is|gets?)?\s*(?:变差|退化|worse|degrad)",
            re.I,
        ),
        "worse",
    ),
)


def read_practice(draft: Draft, lines: list[tuple[str, int]]) -> None:
    """Add what sentences and notes say of how results were made."""
    known = Known.of(draft)
    notes = [(note.text, note.line, note.run) for note in draft.notes]
    for text, line, subject in [*((t, n, "") for t, n in lines), *notes]:
        for sentence in sentences(text):
            read_choice(draft, known, sentence, line, subject)
            _left_out(draft, known, sentence, subject)
            read_restated(draft, known, sentence, line)
            read_gap(draft, known, sentence, line)
            read_signal(draft, sentence, line)
            _credit(draft, known, sentence, line, subject)
            _direction(draft, sentence, line)


def _left_out(draft: Draft, known: Known, text: str, subject: str) -> None:
    """Items without an answer that do not count in the scores: of whom, and how many."""
    answered = ANSWERED_ONLY.search(text)
    if not answered and not (FAILURES.search(text) and LEFT_OUT.search(text)):
        return
    if COUNTED.search(text) or TRAINED_ON.search(text):
        return
    draft.left_out = True
    named = known.named(text)
    numbers = [(m.start(), int(m[0])) for m in LONE.finditer(text)]
    cells = [cell.name for cell in known.cells.find(text)]
    whom = list(dict.fromkeys(n.name for n in named)) or (
        [subject] if subject else draft.run_names()
    )
    if not numbers or answered:
        return
    for name in whom:
        at = next((n.end for n in named if n.name == name), 0)
        near = min(numbers, key=lambda number: abs(number[0] - at))[1]
        draft.said_left_out[name, cells[0] if len(set(cells)) == 1 else ""] = near


def _credit(draft: Draft, known: Known, text: str, line: int, subject: str) -> None:
    """A gain that is put down to one setting, between two runs."""
    what = _cause(text)
    if hedged(text) or not what or OTHER_METRIC.search(text):
        return
    keys = _settings_in(draft, what)
    named = list(dict.fromkeys(n.name for n in known.named(text)))
    cells = [n.name for n in known.cells.find(text)]
    two = by_scores(draft, text, cells, named) if len(named) < 2 else None
    named = list(two[0][::-1]) if two else named or ([subject] if subject else [])
    if len(named) == 1 and known.control and known.control != named[0]:
        named.append(known.control)
    runs = draft.run_names()
    named = runs[::-1] if not named and len(runs) == 2 else named
    if len(named) == 2 and len(keys) <= 1 and (keys or _gain(text)):
        first, second = named if _better(draft, *named) else named[::-1]
        part = Comparison(run=first, control=second, says="better", vary=tuple(keys), line=line)
        draft.add("comparisons", part)


def _cause(text: str) -> str:
    """What a sentence puts an effect down to; "" where it does not."""
    if works := WORKS.search(text):
        return works[1] or works[2]
    if before := CREDITED.search(text):
        return re.split(r"[,，;；。]", text[: before.start()])[-1]
    after = CREDIT.search(text)
    return text[after.end() :] if after else ""


def _gain(text: str) -> bool:
    """Whether a sentence speaks of a gain."""
    return bool(BETTER.search(text) or GAINED.search(text) or FROM_TO.search(text))


def _better(draft: Draft, first: str, second: str) -> bool:
    """Whether the first of two runs has the higher score of what both have."""
    mine, theirs = (
        {s.cell: s.values[0] for s in draft.scores if s.run == name and s.values}
        for name in (first, second)
    )
    return sum(mine[cell] - theirs[cell] for cell in mine.keys() & theirs.keys()) > 0


def _settings_in(draft: Draft, text: str) -> list[str]:
    """The settings that a text names, by key or by value."""
    found: dict[str, None] = {}
    for key, value in {(key, value) for _, key, value, _ in draft.settings}:
        spelled = key.replace("_", "[ _-]")
        own = re.search(rf"(?<![a-z]){spelled}(?![a-z])", text, re.I)
        if own or (len(value) > 3 and value.lower() in text.lower()):
            found[key] = None
    given = {key for _, key, _, _ in draft.settings}
    parts = re.findall(r"[A-Za-z_]+|[\u4e00-\u9fff]+", text)
    spans = [" ".join(parts[i : i + n]) for n in (1, 2, 3) for i in range(len(parts))]
    spans += [
        p[i : i + n] for p in parts if not p.isascii() for n in range(2, 6) for i in range(len(p))
    ]
    return list(found | dict.fromkeys(key for span in spans if (key := setting_of(span)) in given))


def _direction(draft: Draft, text: str, line: int) -> None:
    """What a sentence concludes from the rise or fall of a metric of a training table."""
    if not any(moves.search(text) for moves in (RISES, FALLS, FROM_TO)):
        return
    reads = next((reads for pattern, reads in READS if pattern.search(text)), None)
    places = [(found.start(), name) for name in draft.metrics if (found := _metric(name, text))]
    if reads is None or not places:
        return
    # The metric that the sentence begins with is the one it is about.
    name = min(places, key=lambda place: (place[0], -len(place[1])))[1]
    metric: Metric = draft.metrics[name]
    if metric.reads is None:
        draft.metrics[name] = metric.model_copy(update={"reads": reads, "line": line})


def _metric(name: str, text: str) -> re.Match[str] | None:
    """Where a metric stands in a text as a word of its own."""
    bare = vocabulary.CUMULATIVE.sub("", name).strip(" _-()（）") or name
    spelled = "|".join(re.escape(form) for form in (name, bare))
    shown = re.sub("validation", "val", text, flags=re.I)
    return re.search(rf"(?<![A-Za-z_])(?:{spelled})(?![A-Za-z_=])", shown, re.I)
