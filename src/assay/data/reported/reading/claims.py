"""Short conclusions beside the numbers: which run is said to be better, worse or the same.

A sentence counts only where it names two runs of the tables, or one and the baseline, and a word
that compares them. It holds for the benchmarks that it names. Hedged and negated ones, questions
and plans are no conclusion.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from assay.data.reported.reading.draft import Draft
from assay.data.reported.reading.names import Named, Names
from assay.data.reported.reading.sizes import sentences
from assay.data.reported.record import Comparison, Verdict

BETTER = re.compile(
    r"(?<![a-z])(?:better|beat(?:s|en|ing)?|outperform(?:s|ed|ing)?|surpass(?:es|ed)?"
    r"|exceeds?|improve[sd]?(?: (?:on|over|upon))?|improvement|wins?|won|ahead"
    r"|higher|stronger|superior|gain(?:s|ed)?|tops|leads|helps|helped|lifts?|raises?|raised"
    r"|boosts?|boosted|is effective|has an effect|works|best(?:s|ed)?(?= \w))(?![a-z])"
    r"|有效(?!率)|优于|超过|超越|提升|更好|胜过|领先|高于|更高|更强|好于|强于|改善"
    r"|比.{1,30}(?:好|高|强)",
    re.I,
)
WORSE = re.compile(
    r"(?<![a-z])(?:worse|hurts?|drop(?:s|ped)?|degrade[sd]?|lower|weaker|inferior|behind"
    r"|loses?|lost|harms?|declines?|declined|regress(?:es|ed|ion)?|underperform(?:s|ed)?"
    r"|below|falls?|fell)(?![a-z])"
    r"|不如|下降|变差|更差|低于|逊于|差于|退步|落后|降低|更低|更弱|比.{1,30}(?:差|低|弱)",
    re.I,
)
SAME = re.compile(
    r"(?<![a-z])(?:(?:is|are|about|performs?|scores?|does) (?:exactly |roughly "
    r"|just )?the same(?! (?:\d|items|questions|prompts?|data|seeds?|test|set|problems"
    r"|settings?|budget|harness|model|size))|the same (?:scores?|accuracy|results?"
    r"|level) as|equals?(?: to)?|equally (?:good|well|strong)|(?:is|are) identical"
    r"|identical (?:to|scores?|results?|accuracy)|no (?:\w+ )?(?:difference|effect|gain"
    r"|improvement|change)|as (?:good|strong|accurate|well) as|on par|matches"
    r"|equivalent|indistinguishable"
    r"|does not (?:help|hurt|matter)|ineffective|makes no difference|unaffected"
    r"|no (?:\w+ )?regression|unchanged|preserv(?:es|ed)|retain(?:s|ed)|intact"
    r"|did not (?:hurt|change|degrade|help|matter))(?![a-z])"
    r"|持平|无差异|无效(?!果)|没有(?:任何|什么)?(?:影响|差异|效果|提升|变化|区别)|无影响"
    r"|无效果|(?:相同|一样(?:好|差)?)(?!的|[题提数设种条])|相当|不影响|没有(?:下降|退化|掉点|变差)|未(?:下降|变差|退化|掉点)|不变|毫无",
    re.I,
)
HEDGED = re.compile(
    r"(?<![a-z])(?:not (?:statistically |yet )?(?:significant|decided|distinguishable"
    r"|conclusive|enough|sure|clear|separable|resolved|shown|established|evidence|claim)\w*"
    r"|insignificant"
    r"|noise|noisy|undecided|inconclusive|unclear|no (?:\w+ )?(?:claim|conclusion|evidence"
    r"|verdict|ranking|significant)\w*|cannot|can't|can not|could|may|might|maybe|perhaps"
    r"|possibly|whether|if|would|should|hope[ds]?|expect(?:ed|s)?|plan(?:s|ned)?"
    r"|hypothes\w*|suggests?|appears?|seems?|probably|likely|overlap\w*|too (?:few|small"
    r"|close)|neither|nor|within (?:the )?(?:error|interval|margin|ci)|contains? (?:0|zero)"
    r"|include[sd]? (?:0|zero)|tentative\w*|do(?:es)? not (?:claim|conclude|say|show)"
    r"|don't (?:claim|conclude|say)|next|will|smallest)(?![a-z])|\?"
    r"|不显著|未达显著|无显著|没有显著|噪声|不能|无法|尚不|尚未|不足以|可能|也许|是否|预计"
    r"|计划|希望|不下结论|不做结论|未定|难以|重叠|区间(?:包含|跨)"
    r"|待验证|如果|若|似乎|应该|不确定|不宜|期望|假设|？|不作|不声称|未见显著|说明不了|误差范围",
    re.I,
)
NOT = re.compile(
    r"(?<![a-z])(?:not|never|no longer|isn't|doesn't|didn't|wasn't|without|rather than|no"
    r"|hardly|barely)\s+(?:\w+\s+){0,2}$|(?:不|没有|没|未|并非|无)[^，,]{0,2}$",
    re.I,
)
EFFECT = re.compile(
    r"(?<![a-z])(?:no effect|has an effect|is effective|ineffective|works)(?![a-z])"
    r"|有效(?!率)|无效(?![果])|没有(?:什么)?效果|无效果",
    re.I,
)
"""What is said of one run stands against the baseline."""
OBJECT = re.compile(
    r"(?<![a-z])(?:than|over|versus|vs\.?|against|compared (?:to|with)|relative to|as"
    r"|on par with|behind|below|above|ahead of|upon|from|the|to)(?![a-z])"
    r"|比|相比于?|较|相对于?|有效(?!率)|优于|超过|超越|胜过|不如|低于|高于|逊于|差于|好于"
    r"|领先于?|和|与|于",
    re.I,
)
LISTED = re.compile(
    r"^\s*(?:,|，|、|and|&|/|和|与|以及|及|,\s*and|both|the|runs?|models?)*\s*$", re.I
)
CLAUSE = re.compile(
    r"(?:,|，)?\s*(?<![a-z])(?:but|while|whereas|however|although|though|yet)(?![a-z])\s*,?"
    r"|，?(?:但是?|而(?!且)|然而|不过|却)|[;；]",
    re.I,
)
BASELINE = re.compile(
    r"(?<![A-Za-z0-9_-])(?:the )?(?:base(?:line)?|control)(?: model| run"
    r"| checkpoint)?(?![A-Za-z0-9_-])|基线(?:模型)?|对照(?:组)?|基座(?:模型)?|原始?模型",
    re.I,
)
PAIRED = re.compile(r"(?<![a-z])(?<!un)paired|mcnemar|item by item|per-item|逐题|配对", re.I)
P_VALUE = re.compile(
    r"(?<![a-z])p\s*(?:值|-?value)?\s*(?:为|of|is)?\s*([=<＝＜≈])\s*(0?\.\d+)", re.I
)
CREDIT = re.compile(
    r"(?<![a-z])(?:thanks to|due to|because(?: of)?|comes? from|came from|attribut\w+ to"
    r"|explained by|caused by|credit(?:ed)? to|owing to|is down to|result of"
    r"|driven by)(?![a-z])"
    r"|得益于|归功于|归因于|源于|来自于?|来源于|由于|因为|靠的是|归结于|主要靠",
    re.I,
)
"""What comes after is a cause and no claim of its own."""
AGAINST = re.compile("compared|relative|相比|比|较", re.I)
OTHER_METRIC = re.compile(
    r"(?<![a-z])(?:faster|slower|cheaper|loss|kl|reward|entropy|tokens?|length|shorter|longer"
    r"|latency|memory|speed|time|cost|hours|perplexity|throughput|elo|f1|bleu|rouge|stable"
    r"|parse|format|variance|stability|compute)(?![a-z])"
    r"|损失|奖励|熵|长度|耗时|时间|成本|显存|速度|更快|更慢|稳定|格式|吞吐|困惑度",
    re.I,
)
"""What a sentence may compare that is no score."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A run that is said to compare with another."""

    run: str
    control: str
    says: Verdict
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Known:
    """The names that sentences are understood by."""

    runs: Names
    cells: Names
    control: str

    @staticmethod
    def of(draft: Draft) -> "Known":
        """The names of a draft."""
        averages = [average.name for average in draft.averages]
        return Known(
            Names(draft.run_names()), Names([*draft.cell_names(), *averages]), draft.control()
        )

    def named(self, text: str) -> list[Named]:
        """The runs that a text names, in order; a word for the baseline names the control."""
        found = self.runs.find(text)
        if self.control:
            taken = [(n.start, n.end) for n in found]
            for match in BASELINE.finditer(text):
                if all(match.end() <= start or match.start() >= end for start, end in taken):
                    found.append(Named(self.control, match.start(), match.end()))
        return sorted(found, key=lambda named: named.start)


def verdict_of(text: str) -> tuple[Verdict, int, int] | None:
    """What a clause says, and where its first word that compares stands; None where hedged."""
    if HEDGED.search(text):
        return None
    if same := SAME.search(text):
        return "same", same.start(), same.end()
    found = [
        (m.start(), m.end(), says)
        for p, says in ((BETTER, "better"), (WORSE, "worse"))
        for m in p.finditer(text)
    ]
    if not found or len({says for *_, says in found}) > 1:
        return None
    start, end, says = found[0]
    if NOT.search(text[:start]):
        return None
    return ("better" if says == "better" else "worse"), start, end


def claims_in(text: str, known: Known, subject: str = "") -> Iterator[Claim]:
    """The claims of a sentence; `subject` is the run that it stands beside, if it does."""
    if HEDGED.search(text):
        return
    last: tuple[list[str], list[str]] = ([], [])
    for clause in clauses(CREDIT.split(text)[0]):
        named = known.named(clause)
        found = verdict_of(clause)
        if found is None or OTHER_METRIC.search(clause):
            continue
        runs, controls = _sides(clause, named, *found[1:])
        if found[0] == "same" and not controls:
            runs, controls = runs[:1], runs[1:]
        if subject and subject not in runs:
            # `sft is better` in the notes of another run is about sft.
            first = [n.name for n in named if n.name in runs and n.end <= found[1]]
            turned = bool(first) and found[0] != "same"
            runs, controls = (first, [subject]) if turned else ([subject], [*runs, *controls])
        if EFFECT.search(clause):
            named = [n for n in named if n.end <= found[1]] or named[:1]
            runs, controls = [n.name for n in named[-1:]], [known.control] if known.control else []
        # The second half of `A beats B on X but drops on Y` is about the same runs.
        runs = runs or ([subject] if subject else last[0])
        controls = [name for name in controls if name not in runs] or (
            [] if named and not subject else last[1]
        )
        if not controls and subject and known.control not in ("", subject):
            controls = [known.control]
        last = (runs, controls)
        cells = tuple(dict.fromkeys(n.name for n in known.cells.find(clause)))
        for run in runs:
            yield from (
                Claim(run, control, found[0], cells) for control in controls if run != control
            )


def clauses(text: str) -> list[str]:
    """The parts of a sentence, each with a word that compares; others join their neighbour."""
    found: list[str] = []
    for half in filter(None, map(str.strip, CLAUSE.split(text))):
        pending = ""
        first = len(found)
        for part in re.split(r"(?<=[,，])", half):
            pending += part
            if any(pattern.search(part) for pattern in (BETTER, WORSE, SAME)):
                found.append(pending)
                pending = ""
        if pending and len(found) > first:
            found[-1] += pending
        elif pending:
            found.append(pending)
    return found


def _sides(
    clause: str, named: Sequence[Named], start: int, end: int
) -> tuple[list[str], list[str]]:
    """The runs that a clause is about, and those that they are compared with."""
    if not named:
        return [], []
    objects: list[str] = []
    subjects: list[str] = []
    previous, is_object = 0, False
    for each in named:
        between = clause[previous : each.start]
        opening = is_object and not subjects and re.search("[,，]", between)
        if opening or not previous or not LISTED.match(between):
            passed = previous <= start < each.start or previous < end <= each.start
            marked = re.search(rf"(?:{OBJECT.pattern})\s*(?:the\s+)?(?:\w+\s+)?$", between, re.I)
            beside = re.match(r"\s*(?:相比|相较)", clause[each.end :])
            against = marked and (subjects or AGAINST.search(between))
            is_object = not opening and bool(beside or against or (passed and subjects))
        (objects if is_object else subjects).append(each.name)
        previous = each.end
    return subjects, objects


def read_claims(draft: Draft, lines: Sequence[tuple[str, int]]) -> None:
    """Add the claims of sentences and of notes beside runs."""
    known = Known.of(draft)
    for text, line in lines:
        for sentence in sentences(text):
            named = {n.name for n in known.named(sentence)}
            if len(named) > 1:
                _add(draft, claims_in(sentence, known), sentence, line)
            elif len(named) == 1 and EFFECT.search(sentence):
                _add(draft, claims_in(sentence, known, named.pop()), sentence, line)
    for note in draft.notes:
        cells = (note.cell,) if note.cell in draft.cell_names() else ()
        for sentence in sentences(note.text):
            found = claims_in(sentence, known, note.run)
            beside = (replace(claim, cells=claim.cells or cells) for claim in found)
            _add(draft, beside, sentence, note.line)


def _add(draft: Draft, found: Iterator[Claim], text: str, line: int) -> None:
    """Add claims of runs that share what they are said of, each pair and cells once."""
    for claim in found:
        mine, theirs = (_scored(draft, name) for name in (claim.run, claim.control))
        known = [(c.run, c.control, c.cells) for c in draft.parts.get("comparisons", ())]
        if mine & theirs and (claim.run, claim.control, claim.cells) not in known:
            part = Comparison(
                run=claim.run,
                control=claim.control,
                says=claim.says,
                cells=claim.cells,
                paired=bool(PAIRED.search(text) or PAIRED.search(draft.text)),
                p=_p_value(text),
                line=line,
            )
            draft.add("comparisons", part)


def _p_value(text: str) -> Decimal | None:
    """The p-value that a sentence prints; one that is below a limit is below it."""
    match = P_VALUE.search(text)
    if match is None:
        return None
    value = Decimal(match[2])
    return value * Decimal("0.999") if match[1] in "<＜" else value


def _scored(draft: Draft, run: str) -> set[str]:
    """The cells that a run has a score of."""
    return {s.cell for s in draft.scores if s.run == run and (s.values or s.right is not None)}
