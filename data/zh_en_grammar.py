"""Write a Chinese-English parallel corpus from a small grammar.

Run:  python data/zh_en_grammar.py --seed 1 --out data/zh-en

The program writes train/dev/test.{zh,en} (one sentence a line, UTF-8): unsegmented Chinese and normal
cased English.  Both sides of a pair are built together from one choice of words (zh_en_lexicon.py), so the
English is a function of the Chinese: tense, number and definiteness are always decided by something visible
in the Chinese (the rules are listed in data/README.md).

Every sentence carries its *combinations* (verb + object, subject + verb, place + verb, adjective + noun,
question + verb, ...).  A checksum gives each combination to exactly one of train, dev and test: train has
only train combinations, a dev or test sentence has at least one that train never shows.  The words and the
patterns of dev and test all occur in train.

Sentences of dev and test are sampled one by one.  For each pair of train, several candidates are sampled, and
the one with the rarest words and combinations so far is kept: in 5,000 independent samples, too many words and
combinations occur only a few times.

Random choices use random.Random(seed).random() only, the one call whose sequence Python promises to keep,
and nothing depends on set order or hash(), so a seed gives the same bytes on every Python.
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import zh_en_lexicon as lex
from zh_en_lexicon import NOUNS, TENSES, VERBS, Noun, Row, Tense, Verb, article, plural

T = TypeVar("T")
SIZES = {"train": 5000, "dev": 200, "test": 200}
HELD_OUT_PERCENT = 5  # of the combinations for dev, and as many for test
N_CANDIDATES = 4  # sampled for each training pair; the one with the greatest novelty is kept
MIN_COUNT = 10  # each word or character of dev and test occurs at least so often in train
MAX_SHARED = 3  # at most so many sentences of dev or of test have the same held-out combination
MAX_CHARS = 24  # longer Chinese sentences are discarded

# The tenses of each kind of action; likely tenses are repeated.  lex.VERBS explains the kinds d, n, p and s; b is
# 把 and giving, w two things at once, t going somewhere, g doing something for somebody.
PAST, FUTURE = ("past", "past", "past", "past", "didnot"), ("will", "going", "plan", "wont", "want")
NOW = ("hab", "hab", "hab", "often", "always", "sometimes", "prog", "prog", "prog", "prog")
KINDS = {
    "d": (*PAST, *NOW, *FUTURE, "notwant", "can", "should", "exp", "already"),
    "n": (*PAST, "prog", "prog", *FUTURE, "can", "should"),
    "p": ("past", "past", "past", "didnot", "already", "exp"),
    "s": ("like", "like", "not"),
    "b": ("past", "past", "past", "didnot", "already", "want", "will", "going", "plan", "should"),
    "w": ("hab", "often", "always", "sometimes", "prog"),
    "t": ("past", "past", "didnot", "hab", "will", "going", "plan", "want", "often", "can"),
    "g": ("past", "past", "already", "will", "going", "plan", "want"),
}
BE, WAS = {"1": "am", "3": "is", "p": "are"}, {"1": "was", "3": "was", "p": "were"}
THIS, THESE = (("这", "this"), ("那", "that")), {"this": "these", "that": "those"}
PAST_DAYS = [row for row in lex.PAST if "上个" not in row[0]]


class ClumsyError(Exception):
    """Raised for a sample that would read badly; the caller samples again."""


class Rng:
    """Random choices made from random() alone."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed).random

    def chance(self, probability: float) -> bool:
        return self._random() < probability

    def pick(self, options: Sequence[T]) -> T:
        return options[int(self._random() * len(options))]


def words(*parts: str) -> str:
    return " ".join(part for part in parts if part)


# --------------------------------------------------------------------------------------- noun phrases


@dataclass(frozen=True)
class Phrase:
    """A noun phrase, time, place or companion: Chinese, English, and `key`, its name in combinations."""

    zh: str = ""
    en: str = ""
    key: str = ""
    agr: str = "3"
    combos: tuple[str, ...] = ()
    me: str = ""  # English as an object, where it differs
    my: str = ""  # English as a possessor
    he: str = ""  # Chinese pronoun for a second mention
    bare: bool = False

    @property
    def object(self) -> str:
        return self.me or self.en


PRONOUNS = {zh: Phrase(zh, en, zh, agr, me=me, my=my, he=zh) for zh, en, me, my, agr in lex.PRONOUNS}
NAMES = [Phrase(zh, en, zh, my=en + "'s", he=he) for zh, en, he in lex.NAMES]
CITIES = [Phrase(zh, en, zh) for zh, en in lex.CITIES]


def kin(r: Rng) -> Phrase:
    zh, en, he = r.pick(lex.KIN)
    owner = r.pick(NAMES) if r.chance(0.5) else PRONOUNS[r.pick("我你他她")]
    en = f"{owner.my} {en}"
    return Phrase(owner.zh + ("的" if owner in NAMES else "") + zh, en, zh, my=en + "'s", he=he)


def one_of_us(r: Rng) -> Phrase:
    """Somebody who may own a thing, and who has a pronoun: "he", "Xiaoming", "my mother"."""
    return r.pick(list(PRONOUNS.values())) if r.chance(0.35) else r.pick([r.pick(NAMES), kin(r)])


def described(r: Rng, noun: Noun, probability: float) -> tuple[str, str, tuple[str, ...]]:
    """Add an adjective with this probability: Chinese with the noun, English adjective, combinations."""
    fitting = [adjective for adjective in lex.ADJECTIVES if noun.kind in adjective.before]
    if not fitting or not r.chance(probability):
        return noun.zh, "", ()
    if noun.kind in lex.COLOURED and r.chance(0.5):
        colour, en = r.pick(lex.COLOURS)
        return colour + noun.zh, en, (f"{colour}+{noun.zh}",)
    adjective = r.pick(fitting)
    return adjective.attribute + noun.zh, adjective.en, (f"{adjective.zh}+{noun.zh}",)


def thing(r: Rng, noun: Noun, style: str, adjective: float = 0.3) -> Phrase:
    """A noun phrase in one of these styles.

    bare: plural or mass; the: a bare noun that is definite because of where it stands (subject, after 把);
    num: counted; some: some or many; this: this or that; def: this, that or an owner; rel: a 的-relative.
    """
    if style == "rel":
        return relative_thing(r, noun)
    zh, en, combos = described(r, noun, adjective / 2 if style == "bare" else adjective)
    one, many = words(en, noun.en), words(en, noun.plural)
    phrase = Phrase(zh, many, noun.zh, noun.agr if noun.unit else "p", combos, bare=True)
    if style == "bare" or noun.kind == "subject":
        return phrase
    if style == "some":
        some, english = r.pick([("一些", "some"), ("很多", "a lot of" if noun.unit else "many")])
        return replace(phrase, zh=some + zh, en=f"{english} {many}", bare=False)
    phrase = Phrase(zh, "the " + one, noun.zh, noun.agr, combos)
    if style == "the":
        return phrase
    if style == "def" and r.chance(0.5):
        owner = one_of_us(r)
        return replace(phrase, zh=f"{owner.zh}的{zh}", en=f"{owner.my} {one}")
    this, english = r.pick(THIS)
    if style != "num" and not noun.unit and r.chance(0.25):
        return replace(phrase, zh=f"{this}些{zh}", en=f"{THESE[english]} {many}", agr="p")
    if noun.unit:
        one, many = f"{noun.unit} of {one}", f"{plural(noun.unit)} of {many}"
    if style != "num":
        return replace(phrase, zh=this + noun.measure + zh, en=f"{english} {one}", agr="3")
    number, count = r.pick(lex.NUMBERS[:1] * 5 + lex.NUMBERS[1:6])
    en, agr = (article(one), "3") if number == "一" else (f"{count} {many}", "p")
    return replace(phrase, zh=number + noun.measure + zh, en=en, agr=agr)


def role(r: Rng, style: str) -> Phrase:
    """A person by trade or age: "the" (bare), "this", "num" or "plural" (with 们)."""
    noun = r.pick(NOUNS["person"])
    if style == "plural":
        return Phrase(f"{noun.zh}们", f"the {noun.plural}", noun.zh, "p")
    return thing(r, noun, style, 0.0 if style == "the" else 0.4)


def dressed(r: Rng) -> Phrase:
    """ "The boy in the red shirt": 穿红色衬衫的男孩."""
    noun, clothes, (colour, en) = r.pick(NOUNS["person"]), r.pick(NOUNS["clothes"]), r.pick(lex.COLOURS)
    if noun.zh == "男孩" and clothes.zh == "裙子":
        raise ClumsyError
    zh = f"{'戴' if clothes.zh == '帽子' else '穿'}{colour}{clothes.zh}的{noun.zh}"
    combos = (f"{colour}+{clothes.zh}", f"{clothes.zh}+{noun.zh}")
    return Phrase(zh, f"the {noun.en} in the {en} {clothes.en}", noun.zh, combos=combos)


def subject(r: Rng, asked: bool = False) -> Phrase:
    """The subject of an action; not 我 in a question."""
    if r.chance(0.3):
        return r.pick([np for zh, np in PRONOUNS.items() if zh != "我" or not asked])
    if r.chance(0.6):
        return r.pick([r.pick(NAMES), kin(r)])
    if r.chance(0.15):
        first, second = r.pick([PRONOUNS[r.pick("我他她")], r.pick(NAMES), kin(r)]), r.pick(NAMES)
        en = f"{second.en} and I" if first.zh == "我" else f"{first.en} and {second.en}"
        return Phrase(f"{first.zh}和{second.zh}", en, first.key + "和", "p")
    return dressed(r) if r.chance(0.2) else role(r, r.pick(["the", "the", "this", "this", "plural"]))


def somebody(r: Rng, style: str = "def") -> Phrase:
    """A person as the object of an action."""
    if style == "rel":
        return relative_person(r)
    if style == "num" and r.chance(0.5):
        return role(r, "num")
    return role(r, "this") if r.chance(0.3) else one_of_us(r)


def relative_thing(r: Rng, noun: Noun) -> Phrase:
    """ "The book Xiaoming bought yesterday": 小明昨天买的书.  The time word implies the past tense."""
    gone = "找卖喂吃" if noun.kind == "fruit" else "找卖喂"  # fruit that somebody ate cannot be on the table
    fitting = [row for row in VERBS if noun in row.nouns and row.kind in "dnp" and row.zh not in gone]
    if not fitting or noun.kind == "animal":
        raise ClumsyError
    row, who, (time, when) = r.pick(fitting), one_of_us(r), r.pick(lex.PAST)
    zh, adjective, combos = described(r, noun, 0.15)
    combos = (f"{row.zh}+{noun.zh}", f"{who.key}>{row.zh}", *combos)
    en = words("the", adjective, noun.en, who.en, row.verb.past, when)
    return Phrase(f"{who.zh}{time}{row.zh}的{zh}", en, noun.zh, noun.agr, combos)


def relative_person(r: Rng) -> Phrase:
    """ "The boy who is playing football in the park": 正在公园里踢足球的男孩."""
    noun, tense = r.pick(NOUNS["person"]), r.pick(["prog", "prog", "past"])
    act = fixed(r, tense) if r.chance(0.5) else transitive(r, tense, "bare")
    if not act.places or act.kind != "d":
        raise ClumsyError
    place, (time, when) = place_of(r, act.places), r.pick(lex.PAST)
    combos = (f"{noun.zh}>{act.name}", f"{place.key}@{act.name}", *act.combos)
    if tense == "prog":
        zh, en = "正" + place.zh, words("is", act.verb.ing, act.en, place.en)
    else:
        zh, en = time + place.zh, words(act.verb.past, act.en, place.en, when)
    return Phrase(f"{zh}{act.v}{act.o}的{noun.zh}", f"the {noun.en} who {en}", noun.zh, combos=combos)


# ------------------------------------------------------------------------------------ times and places


def day(r: Rng, rows: Sequence[tuple[str, ...]]) -> Phrase:
    zh, en = r.pick(rows)
    return Phrase(zh, en)


def time_of(r: Rng, when: str) -> Phrase:
    """A time word for the "past", the "future" or a "habit"; a part of the day may come with an hour."""
    (weekday, weekday_en), (part, part_en) = r.pick(lex.WEEKDAYS), r.pick(lex.PARTS_OF_DAY)
    (number, count), (span, span_en) = r.pick(lex.NUMBERS[1:]), r.pick(lex.SPANS)
    if when == "past":
        other, distant = r.pick(lex.PAST), (f"{number}{span}前", f"{count} {span_en}s ago")
        near, on = (f"昨天{part}", f"yesterday {part_en}"), (f"上个{weekday}", f"last {weekday_en}")
    elif when == "future":
        other, distant = r.pick(lex.FUTURE), (f"{number}{span}后", f"in {count} {span_en}s")
        near, on = (f"明天{part}", f"tomorrow {part_en}"), (f"下个{weekday}", f"next {weekday_en}")
    else:
        other, distant = r.pick(lex.HABIT), ("每个周末", "every weekend")
        near, on = (f"每天{part}", f"every {part_en}"), (f"每个{weekday}", f"every {weekday_en}")
    zh, en = r.pick([other, distant, near, near, on])
    if zh == near[0] and r.chance(0.4):
        hour = r.pick(lex.HOURS[part].split())
        zh, en = f"{zh}{hour}点", f"at {lex.COUNT[hour]} o'clock {en}"
    return Phrase(zh, en)


def landmark(r: Rng, place: str) -> tuple[str, str]:
    """The place, at times with a landmark: 银行旁边的书店, "bookshop next to the bank"."""
    noun = lex.PLACES[place][3]
    if lex.PLACES[place] in lex.PUBLIC and r.chance(0.4):
        (relation, en), other = r.pick(lex.LANDMARKS), r.pick([row for row in lex.PUBLIC if row[0] != place])
        return f"{other[0]}{relation}的{place}", f"{noun} {en} the {other[3]}"
    return place, noun


def place_of(r: Rng, places: Sequence[str]) -> Phrase:
    place = r.pick(places)
    if place == "城":
        city = r.pick(CITIES)
        return Phrase("在" + city.zh, "in " + city.en, city.zh)
    if place == "家":
        owner = r.pick([PRONOUNS[r.pick("我你他她")], r.pick(NAMES)])
        zh, en = (f"在{owner.zh}家", f"at {owner.my} home") if r.chance(0.4) else ("在家", "at home")
        return Phrase(zh, en, "家")
    _, suffix, preposition, noun = lex.PLACES[place]
    if lex.PLACES[place] in lex.PRIVATE and r.chance(0.4):
        owner = one_of_us(r)
        return Phrase(f"在{owner.zh}的{place}{suffix}", f"{preposition} {owner.my} {noun}", place)
    zh, noun = landmark(r, place)
    return Phrase(f"在{zh}{suffix}", f"{preposition} the {noun}", place)


def spot_of(r: Rng, kind: str) -> Phrase:
    """Where a thing of this kind may be: 小明的桌子上, "on Xiaoming's table"."""
    zh, relation, preposition, en, _ = r.pick([spot for spot in lex.SPOTS if kind in spot[4].split(",")])
    owner = one_of_us(r) if r.chance(0.25) and zh != "树" else Phrase(my="the")
    whose = owner.zh + "的" if owner.zh else ""
    return Phrase(f"{whose}{zh}{relation}", f"{preposition} {owner.my} {en}", zh + relation)


# -------------------------------------------------------------------------------------------- actions


@dataclass(frozen=True)
class Action:
    """A verb with its object: Chinese in two halves, since 了 and 过 come between them."""

    verb: Verb
    v: str
    o: str
    en: str
    name: str
    kind: str
    bare: bool = False  # 了 follows a bare object, but precedes a counted or definite one
    places: tuple[str, ...] = ()
    combos: tuple[str, ...] = ()
    noun: Noun | None = None
    other: str = ""  # key of a second person in the action


FIXED = {
    v + o: Action(lex.verb(forms), v, o, en, v + o, "d", True, tuple(places.split()))
    for v, o, forms, en, places in lex.FIXED
}


def fixed(r: Rng, _tense: str) -> Action:
    return r.pick(list(FIXED.values()))


def transitive(r: Rng, tense: str, style: str = "", rows: Sequence[Row] = VERBS) -> Action:
    row = r.pick([row for row in rows if tense in KINDS[row.kind]])
    noun, style = r.pick(row.nouns), style or r.pick(TENSES[tense].styles)
    if style == "num" and tense == "hab" and row.zh not in "吃喝":
        style = "bare"  # one buys "hats" every day, not "a hat"
    if row.zh in "做画写买吃喝喂" and style in ("def", "rel"):
        style = "this"  # not "bought my hat", "ate the egg he bought", "fed his panda"
    np = somebody(r, style) if noun.kind == "person" else thing(r, noun, style)
    if f"{row.zh}的" in np.zh:
        raise ClumsyError  # "borrow the book he borrowed"
    combos, other = (f"{row.zh}+{np.key}", *np.combos), np.key if noun.kind == "person" else ""
    return Action(row.verb, row.zh, np.zh, np.object, row.zh, row.kind, np.bare, row.places, combos, noun, other)


def go(r: Rng, tense: str) -> Action:
    """ "Go to the park to run", in the past "went to the park and ran": 去公园跑步."""
    errands = [row for row in VERBS if row.zh in "买借看喂寄画"]
    act = fixed(r, tense) if r.chance(0.5) else transitive(r, "hab" if tense in NOW else "will", "", errands)
    places = [row for row in lex.PLACES.values() if row[0] in act.places and row not in lex.PRIVATE]
    if not places:
        raise ClumsyError
    zh, en = landmark(r, place := r.pick(places)[0])
    to, base = f"to the {en}", act.verb.base
    past, ing = f"went {to} and {act.verb.past}", f"going {to} to {base}"
    forms = Verb(f"go {to} to {base}", f"goes {to} to {base}", past, "", ing)
    combos = (*act.combos, f"{place}@{act.name}")
    return replace(act, verb=forms, v=f"去{zh}{act.v}", kind="t", places=(), combos=combos)


def for_somebody(r: Rng, tense: str) -> Action:
    """ "Buy a hat for my mother", "send a letter to my mother": 给我妈妈买一顶帽子."""
    favours = [row for row in VERBS if row.zh in "买做画写寄"]
    act, other = transitive(r, tense, r.pick(["num", "num", "some"]), favours), somebody(r)
    if act.v == "写" and act.noun not in NOUNS["信"]:
        raise ClumsyError  # one writes people letters, but not novels
    en = f"{act.en} {'to' if act.v in '写寄' else 'for'} {other.object}"
    combos = (*act.combos, f"{act.name}给{other.key}")
    return replace(act, v=f"给{other.zh}{act.v}", en=en, kind="g", combos=combos, other=other.key)


def give(r: Rng, _tense: str) -> Action:
    """ "Give Xiaoming a book": 送给小明一本书."""
    row, other = r.pick(lex.GIVE[:2]), somebody(r)
    np = thing(r, r.pick(row.nouns), "num")
    combos = (f"{row.zh}+{np.key}", f"{row.zh}>{other.key}", *np.combos)
    o, en = other.zh + np.zh, f"{other.object} {np.en}"
    return Action(row.verb, row.zh, o, en, row.zh, "b", combos=combos, other=other.key)


def ba(r: Rng, tense: str) -> Action:
    """ "Put my book on the table", "give the book to him", "repair the car": 把我的书放在桌子上."""
    row = r.pick([r.pick(lex.PUT), r.pick(lex.GIVE), r.pick(lex.RESULTS)])
    if row.zh == "打破" and tense not in PAST:
        raise ClumsyError  # nobody plans to break a cup
    noun = r.pick(row.nouns)
    np, end, other = thing(r, noun, r.pick(["the", "def"])), Phrase(), ""
    if row in lex.PUT:
        end = spot_of(r, noun.kind)
    elif row in lex.GIVE:
        whom = somebody(r)
        end, other = Phrase(whom.zh, "to " + whom.object, whom.key), whom.key
    combos = (f"{row.zh}+{noun.zh}", f"{row.zh}{end.key}+{noun.zh}", *np.combos)
    v, en = f"把{np.zh}{row.zh}{end.zh}", words(np.en, end.en)
    return Action(row.verb, v, "", en, row.zh, "b", combos=combos, other=other)


def two_at_once(r: Rng, _tense: str) -> Action:
    """ "Read newspapers while drinking tea": 一边喝茶一边看报纸."""
    one = r.pick([transitive(r, "hab", "bare", VERBS[:2]), FIXED["听音乐"], FIXED["看电视"]])
    chores = [transitive(r, "hab", "bare", [row for row in VERBS if row.zh in "看写画"])]
    two = r.pick([*chores, *(FIXED[name] for name in ("做作业", "做饭", "工作", "下棋"))])
    v, en = f"一边{one.v}{one.o}一边{two.v}", words(two.en, "while", one.verb.ing, one.en)
    combos = (f"{one.name}&{two.name}", *one.combos, *two.combos)
    return replace(two, v=v, en=en, kind="w", places=(), combos=combos)


def travel(r: Rng, _tense: str) -> Action:
    """ "Go from Beijing to Shanghai by train": 坐火车从北京去上海."""
    start, end, (way, by) = r.pick(CITIES), r.pick(CITIES), r.pick(lex.WAYS)
    if start == end:
        raise ClumsyError
    combos, en = (f"{way}+{end.key}", f"{start.key}-{end.key}"), f"from {start.en} to {end.en} {by}"
    return Action(lex.verb("go, went, gone"), f"{way}从{start.zh}去", end.zh, en, way, "t", combos=combos)


Maker = Callable[[Rng, str], Action]
DEEDS: list[Maker] = [fixed, transitive]
# Each maker of actions is a sentence pattern: its weight, the maker, and the kinds whose tenses it uses.
MAKERS: dict[str, tuple[int, Maker, str]] = {
    "transitive": (18, transitive, "ddnps"),
    "fixed": (8, fixed, "d"),
    "go": (4, go, "t"),
    "for_somebody": (4, for_somebody, "g"),
    "give": (3, give, "b"),
    "ba": (8, ba, "b"),
    "two_at_once": (3, two_at_once, "w"),
    "travel": (3, travel, "t"),
}


def any_action(r: Rng, *wanted: str) -> tuple[Action, str]:
    """An action of a random maker, and its tense: one of `wanted`, if given."""
    _, maker, kinds = r.pick([entry for entry in MAKERS.values() for _ in range(entry[0])])
    tense = r.pick(wanted or KINDS[kinds[0]])
    if not any(tense in KINDS[kind] for kind in kinds):
        raise ClumsyError
    return maker(r, tense), tense


# -------------------------------------------------------------------------------------------- clauses


@dataclass(frozen=True)
class Clause:
    subj: Phrase
    act: Action
    tense: Tense
    time: Phrase = Phrase()
    place: Phrase = Phrase()
    mate: Phrase = Phrase()

    def zh(self, before_modal: str = "") -> str:
        """Subject, time, modal, companion, place, verb, object; but time follows 想 and 打算."""
        act, modal, after, time = self.act, self.tense.before, self.tense.after, self.time.zh
        if modal == "正在" and self.place.zh and not self.mate.zh:
            modal = "正"  # 正在 and 在公园里 make 正在公园里
        vp = act.v + act.o + after if after == "了" and act.bare else act.v + after + act.o
        early, late = ("", time) if modal in ("想", "不想", "打算") else (time, "")
        return self.subj.zh + early + before_modal + modal + late + self.mate.zh + self.place.zh + vp

    def en(self, question: bool = False) -> str:
        """Subject, verb, object, companion, place, time; a question has its auxiliary in front."""
        agr, main, tense = self.subj.agr, self.act.verb, self.tense
        aux = BE[agr] if tense.aux == "be" else tense.aux
        if agr == "3":
            aux = {"do": "does", "have": "has"}.get(aux, aux)
        lead = {"想": lex.WANT, "不想": lex.WANT, "打算": lex.PLAN}.get(tense.before, main)
        form = lead.base
        if tense.aux in ("do", "did") and not question and "not " not in tense.group:
            aux, form = "", lead.past if tense.aux == "did" else lead.present(agr)
        group = tense.group.format(v=form, base=main.base, ing=main.ing, part=main.part)
        head = (aux, self.subj.en, group) if question else (self.subj.en, aux, group)
        return words(*head, self.act.en, self.mate.en, self.place.en, self.time.en)

    def combos(self) -> tuple[str, ...]:
        name = self.act.name
        where = (f"{self.place.key}@{name}",) if self.place.key else ()
        return (f"{self.subj.key}>{name}", *where, *self.act.combos, *self.subj.combos)


def clause(r: Rng, subj: Phrase, act: Action, tense: str, dated: bool = True) -> Clause:
    """A clause with a time (if dated), a place and a companion where they fit."""
    if act.other and act.other[0] == subj.key[:1]:
        raise ClumsyError  # nobody helps himself, and 我 does not help 我们
    time = place = mate = Phrase()
    if any(day in act.v + act.o for day, _ in lex.PAST):
        dated = False  # the relative clause in the object already has a time
    timed = dated and act.kind != "s" and tense in (*PAST, *FUTURE, "hab", "notwant", "can", "should")
    if timed and r.chance(0.9 if tense in ("past", "hab", "going") else 0.6):
        time = time_of(r, "past" if tense in PAST else "habit" if tense == "hab" else "future")
    if act.places and tense != "already" and r.chance(0.5 if dated else 0.35):
        place = place_of(r, act.places)
    if act.kind in "dt" and not act.other and subj.agr != "p" and r.chance(0.12):
        other = r.pick([r.pick(NAMES), kin(r)])
        mate = Phrase(f"和{other.zh}一起", f"with {other.object}", other.key)
    return Clause(subj, act, TENSES[tense], time, place, mate)


# ------------------------------------------------------------------------------------------- patterns


@dataclass(frozen=True)
class Pair:
    zh: str
    en: str
    combos: tuple[str, ...]
    pattern: str = ""


def pair(zh: str, en: str, *combos: Sequence[str], ask: bool = False) -> Pair:
    en = en[0].upper() + en[1:] + ("?" if ask else ".")
    return Pair(zh + ("？" if ask else "。"), en, tuple(combo for group in combos for combo in group))


Pattern = Callable[[Rng], Pair]
PATTERNS: dict[str, tuple[int, Pattern]] = {}


def pattern(weight: int, name: str = "") -> Callable[[Pattern], Pattern]:
    def register(function: Pattern) -> Pattern:
        PATTERNS[name or function.__name__] = (weight, function)
        return function

    return register


def statement(maker: Maker, kinds: str) -> Pattern:
    def build(r: Rng) -> Pair:
        tense = r.pick(KINDS[r.pick(kinds)])
        c = clause(r, subject(r), maker(r, tense), tense)
        return pair(c.zh(), c.en(), c.combos())

    return build


for _name, (_weight, _maker, _kinds) in MAKERS.items():
    pattern(_weight, _name)(statement(_maker, _kinds))

# Questions: weight, Chinese question word, English one, tenses.
QUESTIONS = {
    "yes_no": (5, "吗", "", "past past hab like prog will going plan want can should often exp already"),
    "why": (4, "为什么", "why", "didnot didnot not notwant prog going often want"),
    "when": (3, "什么时候", "when", "will going want plan"),
    "where": (3, "在哪里", "where", "past past prog will going hab plan"),
    "who": (3, "谁", "", "past past prog will going want often hab"),
}


def question(zh: str, word: str, tenses: str) -> Pattern:
    def build(r: Rng) -> Pair:
        act, tense = any_action(r, *tenses.split())
        c, combos = clause(r, subject(r, asked=True), act, tense), [f"{zh}:{act.name}"]
        if zh == "谁":
            c = replace(c, subj=Phrase("谁", "who"), mate=Phrase())
            return pair(c.zh(), c.en(), c.combos(), combos, ask=True)
        if zh == "在哪里":
            if not act.places:
                raise ClumsyError
            c = replace(c, place=Phrase(zh))
        elif zh == "什么时候":
            c = replace(c, time=Phrase(zh))
        chinese = c.zh("为什么" if zh == "为什么" else "") + ("吗" if zh == "吗" else "")
        return pair(chinese, words(word, c.en(question=True)), c.combos(), combos, ask=True)

    return build


for _name, (_weight, _zh, _en, _tenses) in QUESTIONS.items():
    pattern(_weight, _name)(question(_zh, _en, _tenses))


@pattern(4)
def what(r: Rng) -> Pair:
    """ "What did he buy?" 什么, "Who did he meet?" 谁, "How many cups of tea ...?" 几杯茶."""
    tense = r.pick(["past", "past", "past", "prog", "going", "want", "will", "hab"])
    act = transitive(r, tense, "bare")
    noun = act.noun
    if noun is None or noun.kind == "subject":
        raise ClumsyError
    c = clause(r, subject(r, asked=True), replace(act, en=""), tense)
    if noun.kind == "person":
        o, en = "谁", "who"
    elif r.chance(0.5) and tense not in ("prog", "hab"):
        o, en = f"几{noun.measure}{noun.zh}", f"how many {noun.many}"
    else:
        o, en = "什么", "what"
    c = replace(c, act=replace(c.act, o=o, bare=False))
    return pair(c.zh(), f"{en} {c.en(question=True)}", c.combos(), [f"{o[0]}:{act.name}"], ask=True)


@pattern(3)
def tells(r: Rng) -> Pair:
    """ "The teacher told Xiaoming to clean the room yesterday": 老师昨天让小明打扫房间."""
    act, time = r.pick(DEEDS)(r, "will"), time_of(r, r.pick(["past", "past", "habit"]))
    teller, told = r.pick([one_of_us(r), role(r, "the")]), somebody(r)
    if teller.key[0] == told.key[0] or (act.other and act.other[0] in teller.key + told.key):
        raise ClumsyError
    tell = "told" if "每" not in time.zh else lex.verb("tell").present(teller.agr)
    place = place_of(r, act.places) if act.places and r.chance(0.5) else Phrase()
    return pair(
        f"{teller.zh}{time.zh}让{told.zh}{place.zh}{act.v}{act.o}",
        words(teller.en, tell, told.object, "to", act.verb.base, act.en, place.en, time.en),
        [f"让:{act.name}", f"{teller.key}让{told.key}", f"{told.key}>{act.name}", *act.combos],
    )


@pattern(3)
def imperative(r: Rng) -> Pair:
    act = r.pick([*DEEDS, ba, for_somebody])(r, "will")
    start, en, end = r.pick([("请", "please", ""), ("别", "do not", ""), ("我们", "let us", "吧")])
    place = place_of(r, act.places) if act.places and r.chance(0.7) else Phrase()
    time = day(r, lex.FUTURE[:3]) if start != "别" and r.chance(0.5) else Phrase()
    if act.other and act.other[0] == start[0]:
        raise ClumsyError
    return pair(
        f"{start}{time.zh}{place.zh}{act.v}{act.o}{end}",
        words(en, act.verb.base, act.en, place.en, time.en),
        [f"{start}:{act.name}", f"{place.key}@{act.name}", *act.combos],
    )


@pattern(3)
def hopes(r: Rng) -> Pair:
    person, other, (act, tense) = subject(r), one_of_us(r), any_action(r, "will", "can")
    if person.key[0] == other.key[0]:
        raise ClumsyError
    c, hope = clause(r, other, act, tense), lex.verb("hope").present(person.agr)
    return pair(f"{person.zh}希望{c.zh()}", f"{person.en} {hope} that {c.en()}", c.combos(), [f"希望:{act.name}"])


def any_of(r: Rng, kind: str) -> Phrase:
    """A phrase that an adjective of this kind can describe."""
    if kind in ("person", "state"):
        return relative_person(r) if kind == "person" and r.chance(0.2) else subject(r)
    if kind == "city":
        return r.pick(CITIES)
    if kind == "place":
        zh, en = landmark(r, r.pick(lex.PUBLIC)[0])
        return Phrase(zh, "the " + en, zh)
    return thing(r, r.pick(NOUNS[kind]), "this" if kind == "animal" else r.pick(["def", "rel"]))


# 太 with other adjectives is praise: 太好吃了 is not "too delicious".
TOO = ("大", "小", "旧", "贵", "重", "忙", "累")


@pattern(6)
def quality(r: Rng) -> Pair:
    """ "The hat you bought yesterday is very beautiful", "He thinks that ...": 你昨天买的帽子很漂亮."""
    adjective, (degree, very) = r.pick(lex.ADJECTIVES), r.pick(lex.DEGREES)
    np = any_of(r, kind := r.pick(adjective.said_of))
    described_as = {combo.partition("+")[0] for combo in np.combos}
    if {adjective.zh, lex.OPPOSITES.get(adjective.zh)} & described_as:
        raise ClumsyError
    if (degree == "太" and adjective.zh not in TOO) or degree + adjective.zh == "不有意思":
        raise ClumsyError
    zh, en = degree + adjective.zh + ("了" if degree == "太" else ""), words(very, adjective.en)
    combos = (f"{adjective.zh}={np.key}", degree + adjective.zh, *np.combos)
    if kind == "state" and degree != "不" and r.chance(0.5):
        time, when_ = r.pick(PAST_DAYS)
        return pair(np.zh + time + zh, f"{np.en} {WAS[np.agr]} {en} {when_}", combos)
    zh, en = np.zh + zh, f"{np.en} {BE[np.agr]} {en}"
    if kind == "state" or r.chance(0.65):
        return pair(zh, en, combos)
    who = one_of_us(r)
    if who.key[0] == np.key[0]:
        raise ClumsyError
    think = lex.verb("think").present(who.agr)
    return pair(f"{who.zh}觉得{zh}", f"{who.en} {think} that {en}", combos, [f"{who.key}觉得{adjective.zh}"])


@pattern(6)
def compare(r: Rng) -> Pair:
    """ "Taller than", "much taller than", "not as tall as", "as tall as": 比, 得多, 没有...那么, 和...一样."""
    adjective = r.pick([a for a in lex.ADJECTIVES if a.said_of != ("state",)])
    one, two = any_of(r, kind := r.pick(adjective.said_of)), any_of(r, kind)
    if kind in NOUNS and kind != "person":
        noun = r.pick(NOUNS[kind])
        styles = ["this"] if kind == "animal" else ["this", "def", "def", "rel"]
        one, two = thing(r, noun, r.pick(styles), 0.0), thing(r, noun, r.pick(styles[:3]), 0.0)
    elif one.key[0] == two.key[0]:
        raise ClumsyError
    a, b, adj = f"{one.en} {BE[one.agr]}", two.object, adjective.zh
    forms = {
        f"{one.zh}比{two.zh}{adj}": f"{a} {adjective.more} than {b}",
        f"{one.zh}比{two.zh}{adj}得多": f"{a} much {adjective.more} than {b}",
        f"{one.zh}没有{two.zh}那么{adj}": f"{a} not as {adjective.en} as {b}",
        f"{one.zh}和{two.zh}一样{adj}": f"{a} as {adjective.en} as {b}",
        f"{one.zh}比{two.zh}{adj}吗": f"{BE[one.agr]} {one.en} {adjective.more} than {b}",
    }
    zh, en = r.pick(list(forms.items()))
    combos = (f"{adj}={one.key}", f"{adj}<{two.key}", f"{one.key}~{two.key}", *one.combos, *two.combos)
    if one.zh == two.zh or "和" in one.zh + two.zh:
        raise ClumsyError  # whom would 小明和小红和我一样高 compare?
    return pair(zh, en, combos, ask=zh.endswith("吗"))


def amount(r: Rng, noun: Noun, place: Phrase, start: tuple[str, str, str], end: str) -> Pair:
    """A sentence with 有: statement, question (吗, 几) or negation (没).  `start` is English for these three."""
    form, zh = r.pick(["num", "num", "num", "some", "no", "ask", "count"]), place.zh
    be = BE[noun.agr if noun.unit else "p"]
    say, ask, no = start
    combos = (f"{place.key}有{noun.zh}", f"有{form}{noun.zh}", *place.combos)
    if form == "no":
        return pair(f"{zh}没有{noun.zh}", words(no.format(be=be), noun.plural, end), combos)
    if form == "ask":
        return pair(f"{zh}有{noun.zh}吗", words(ask.format(be=be), "any", noun.plural, end), combos, ask=True)
    if form == "count":
        en = words("how many", noun.many, ask.format(be="are"), end)
        return pair(f"{zh}有几{noun.measure}{noun.zh}", en, combos, ask=True)
    np = thing(r, noun, form, 0.5)
    return pair(f"{zh}有{np.zh}", words(say.format(be=BE[np.agr]), np.en, end), combos, np.combos)


@pattern(4)
def there_is(r: Rng) -> Pair:
    """ "There are two books on the table": 桌子上有两本书."""
    kind = r.pick(["reading", "goods", "clothes", "fruit", "food", "drink", "pet", "animal"])
    spot = spot_of(r, kind)
    return amount(r, r.pick(NOUNS[kind]), spot, ("there {be}", "{be} there", "there {be} no"), spot.en)


@pattern(3)
def has(r: Rng) -> Pair:
    """ "He has two books": 他有两本书."""
    who, kind = subject(r, asked=True), r.pick(["clothes", "goods", "reading", "vehicle", "furniture", "pet"])
    do, have = ("does", "has") if who.agr == "3" else ("do", "have")
    start = (f"{who.en} {have}", f"{do} {who.en} have", f"{who.en} {do} not have any")
    return amount(r, r.pick(NOUNS[kind]), who, start, "")


@pattern(5)
def located(r: Rng) -> Pair:
    """ "My book is on the table", "Where is my book?": 我的书在桌子上."""
    if r.chance(0.35):
        np, at = subject(r, asked=True), place_of(r, [*lex.PLACES, "家", "家", "城", "城"])
    else:
        kind = r.pick(["reading", "goods", "clothes", "fruit"])
        np, at = thing(r, r.pick(NOUNS[kind]), r.pick(["the", "def", "def", "rel"])), spot_of(r, kind)
    zh, be, form = at.zh.removeprefix("在"), BE[np.agr], r.pick(["yes", "yes", "no", "ask", "where"])
    combos = (f"{np.key}在{at.key}", *np.combos)
    if form == "where":
        return pair(f"{np.zh}在哪里", f"where {be} {np.en}", np.combos, [f"哪里{np.key}"], ask=True)
    if form == "ask":
        return pair(f"{np.zh}在{zh}吗", f"{be} {np.en} {at.en}", combos, ask=True)
    if form == "no":
        return pair(f"{np.zh}不在{zh}", f"{np.en} {be} not {at.en}", combos)
    return pair(f"{np.zh}在{zh}", f"{np.en} {be} {at.en}", combos)


@pattern(4)
def belongs(r: Rng) -> Pair:
    """ "This hat is Xiaoming's", "Whose is this hat?", "This is the hat I bought yesterday"."""
    noun = r.pick(NOUNS[r.pick(["reading", "goods", "clothes", "vehicle", "furniture"])])
    form, (this, en) = r.pick(["mine", "whose", "rel", "rel", "ask"]), r.pick(THIS)
    if form in ("rel", "ask"):
        np = relative_thing(r, noun)
        en, combos = THESE[en] if np.agr == "p" else en, (*np.combos, f"这是{noun.zh}")
        if form == "rel":
            return pair(f"{this}是{np.zh}", f"{en} {BE[np.agr]} {np.en}", combos)
        return pair(f"{this}是{np.zh}吗", f"{BE[np.agr]} {en} {np.en}", combos, ask=True)
    np, owner = thing(r, noun, "this"), r.pick([r.pick(NAMES), kin(r)])
    en, combos = f"{np.en} {BE[np.agr]} {owner.my}", (*np.combos, f"{owner.key}的{noun.zh}")
    if form == "whose":
        return pair(f"{np.zh}是谁的", f"whose {BE[np.agr]} {np.en}", np.combos, [f"谁的{noun.zh}"], ask=True)
    return pair(f"{np.zh}是{owner.zh}的", en, combos)


@pattern(3)
def is_somebody(r: Rng) -> Pair:
    """ "The boy who is singing in the park is my younger brother": 正在公园里唱歌的男孩是我弟弟."""
    person, whom = relative_person(r) if r.chance(0.7) else dressed(r), kin(r)
    young = {"男孩": "哥弟", "女孩": "姐妹", "孩子": "弟妹"}
    if whom.key[0] not in young.get(person.key, whom.key) or ("裙子的" in person.zh and whom.he == "他"):
        raise ClumsyError  # the girl is nobody's grandfather
    combos = (*person.combos, f"{person.key}是{whom.key}")
    return pair(f"{person.zh}是{whom.zh}", f"{person.en} is {whom.en}", combos)


@pattern(2)
def is_a(r: Rng) -> Pair:
    """ "She is a young painter": 她是一位年轻的画家."""
    person, noun = one_of_us(r), r.pick(NOUNS["job"])
    zh, adjective, combos = described(r, noun, 0.5)
    combos, be = (*combos, f"{person.key}是{noun.zh}"), BE[person.agr]
    if person.agr == "p" and person.zh != "你":
        return pair(f"{person.zh}是{zh}", words(person.en, be, adjective, noun.plural), combos)
    en = article(words(adjective, noun.en))
    if r.chance(0.3):
        return pair(f"{person.zh}不是{zh}", f"{person.en} {be} not {en}", combos)
    return pair(f"{person.zh}是一{noun.measure}{zh}", f"{person.en} {be} {en}", combos)


@pattern(4)
def by_somebody(r: Rng) -> Pair:
    """The passive: 我的手机昨天被那个男孩偷走了."""
    row, person = r.pick([*lex.RESULTS, *lex.STEAL, *lex.STEAL]), somebody(r)
    np = thing(r, r.pick(row.nouns), r.pick(["the", "def", "def"]))
    time = time_of(r, "past") if r.chance(0.7) else Phrase()
    return pair(
        f"{np.zh}{time.zh}被{person.zh}{row.zh}了",
        words(np.en, WAS[np.agr], row.verb.part, "by", person.object, time.en),
        [f"{row.zh}+{np.key}", f"{person.key}>{row.zh}", f"被{np.key}", *np.combos],
    )


@pattern(3)
def manner(r: Rng) -> Pair:
    """ "Sings very well": 唱歌唱得很好; "runs faster than me": 跑步跑得比我快."""
    act = FIXED[r.pick(["跑步", "游泳", "唱歌", "跳舞", "打篮球", "踢足球", "弹钢琴", "下棋", "做饭"])]
    person, other = subject(r), somebody(r)
    how, well, better = ("快", "fast", "faster") if act.name in ("跑步", "游泳") else ("好", "well", "better")
    if person.key[0] == other.key[0]:
        raise ClumsyError
    zh = f"{person.zh}{act.v}{act.o}{act.v}得"
    en = words(person.en, act.verb.present(person.agr), act.en)
    combos = [f"{person.key}>{act.name}", f"得{act.name}"]
    if r.chance(0.5):
        combos.append(f"{person.key}~{other.key}")
        return pair(f"{zh}比{other.zh}{how}", f"{en} {better} than {other.object}", combos)
    degree, very = r.pick(lex.DEGREES[:2])
    return pair(f"{zh}{degree}{how}", f"{en} {very} {well}", combos, [f"{degree}{act.name}"])


# --------------------------------------------------------------------------------- two-clause sentences


def state(r: Rng, person: Phrase, past: bool, states: str) -> tuple[str, str, str]:
    """ "Xiaoming was very busy yesterday": Chinese, English, and the Chinese adjective."""
    adjective = r.pick([a for a in lex.ADJECTIVES if a.zh in states.split()])
    (degree, very), (time, when) = r.pick(lex.DEGREES[:2]), r.pick(PAST_DAYS) if past else ("", "")
    en = words(person.en, (WAS if past else BE)[person.agr], very, adjective.en, when)
    return f"{person.zh}{time}{degree}{adjective.zh}", en, adjective.zh


@pattern(5)
def because(r: Rng) -> Pair:
    person, past = one_of_us(r), r.chance(0.6)
    zh, en, why = state(r, person, past, "忙 累 难过 生气" if past else "饿 渴 累 难过 生气 高兴")
    if past:
        act, tense = any_action(r, "didnot")
    elif why in "饿渴":
        act, tense = transitive(r, "want", "", [VERBS["饿渴".index(why)]]), "want"
    else:
        act, tense = fixed(r, "want"), "want" if why == "高兴" else "notwant"
    c = clause(r, PRONOUNS[person.he], act, tense, dated=False)
    if past and r.chance(0.4):
        (rain, rained), (time, when) = r.pick([("下雨", "rained"), ("下雪", "snowed")]), r.pick(PAST_DAYS)
        zh, en, c = f"{time}{rain}了", f"it {rained} {when}", replace(c, subj=person)
    return pair(f"因为{zh}，所以{c.zh()}", f"because {en}, {c.en()}", c.combos(), [f"因为{why}{act.name}"])


@pattern(5)
def although(r: Rng) -> Pair:
    person, past = one_of_us(r), r.chance(0.6)
    zh, en, why = state(r, person, past, "忙 累 饿 难过 生气" if past else "忙 累")
    if past:  # 还是...了 is a past tense, so sample the action as for the past
        act, tense = r.pick([*DEEDS, ba])(r, "past"), "still"
    else:
        act, tense = any_action(r, "often", "always")
    c = clause(r, PRONOUNS[person.he], act, tense, dated=False)
    return pair(f"虽然{zh}，但是{c.zh()}", f"although {en}, {c.en()}", c.combos(), [f"虽然{why}{act.name}"])


@pattern(5)
def if_then(r: Rng) -> Pair:
    person, (time, when), tense = one_of_us(r), r.pick(lex.FUTURE[:3]), r.pick(["will", "wont"])
    if r.chance(0.5):
        condition, en = r.pick(lex.CONDITIONS)
        zh, subj, act = time + condition, person, any_action(r, tense)[0]
    else:
        condition, en = r.pick([("有时间", "time"), ("有钱", "money")])
        zh, en = f"{person.zh}{time}{condition}", f"{person.en} {'has' if person.agr == '3' else 'have'} {en}"
        purchase = transitive(r, tense, "", [row for row in VERBS if row.zh == "买"])
        subj, act = PRONOUNS[person.he], purchase if condition == "有钱" else any_action(r, tense)[0]
    c = clause(r, subj, act, tense, dated=False)
    combos = (*c.combos(), f"如果{condition}{act.name}")
    return pair(f"如果{zh}，{c.zh('就')}", f"if {en} {when}, {c.en()}", combos)


@pattern(7)
def at_the_time(r: Rng) -> Pair:
    """ "When I was running in the park yesterday, I met a teacher": 我昨天在公园里跑步的时候，我遇到了..."""
    person, time = one_of_us(r), day(r, lex.PAST)
    act = fixed(r, "past") if r.chance(0.6) else transitive(r, "hab", "bare")
    if not act.places or act.kind != "d":
        raise ClumsyError
    place = place_of(r, act.places)
    found = transitive(r, "past", r.pick(["num", "num", "def"]), [row for row in VERBS if row.kind == "p"])
    c = clause(r, PRONOUNS[person.he], replace(found, places=()), "past", dated=False)
    return pair(
        f"{person.zh}{time.zh}{place.zh}{act.v}{act.o}的时候，{c.zh()}",
        words("when", person.en, WAS[person.agr], act.verb.ing, act.en, place.en, time.en) + ", " + c.en(),
        [f"{place.key}@{act.name}", f"{person.key}>{act.name}", f"{act.name}时{found.name}", *act.combos],
        c.combos(),
    )


# ----------------------------------------------------------------------------------------- the corpus


def part_of(seed: int, combo: str) -> str:
    """The part that owns a combination, by a checksum: it does not depend on the order of sampling."""
    percent = zlib.crc32(f"{seed} {combo}".encode()) % 100
    return "dev" if percent < HELD_OUT_PERCENT else "test" if percent < 2 * HELD_OUT_PERCENT else "train"


def tokens(english: str) -> list[str]:
    return english.replace(",", " ,").replace(".", " .").replace("?", " ?").split()


def natural(zh: str) -> bool:
    """Not too long, no name twice (Chinese would use a pronoun), and each meal at its time of day."""
    if len(zh) > MAX_CHARS or any(zh.count(name.zh) > 1 for name in NAMES):
        return False
    long_ago = ("月", "个星期前", "个星期后")
    wrong = {
        "早饭": ("下午", "晚上", "晚饭"),
        "吃晚饭": ("早上", "下午", "以后"),
        "吃": long_ago,
        "喝": long_ago,
    }
    return not any(meal in zh and any(time in zh for time in times) for meal, times in wrong.items())


def draw(r: Rng, seed: int, name: str = "") -> tuple[str, Pair]:
    """Sample a pair (of the pattern `name`, if given); also return its part, "" if dev and test both own it."""
    names = [name] if name else [name for name, (weight, _) in PATTERNS.items() for _ in range(weight)]
    while True:
        name = r.pick(names)
        try:
            drawn = PATTERNS[name][1](r)
        except ClumsyError:
            continue
        if natural(drawn.zh):
            owners = sorted({part_of(seed, combo) for combo in drawn.combos} - {"train"})
            part = "train" if not owners else owners[0] if len(owners) == 1 else ""
            return part, replace(drawn, pattern=name)


def demo_pair() -> Pair:
    """The pair that README.md and `make demo` show. It is in no part of the corpus."""
    book = NOUNS["书"][0]
    row = next(row for row in VERBS if row.zh == "买" and book in row.nouns)
    np = Phrase("一" + book.measure + book.zh, article(book.en), book.zh)
    act = Action(row.verb, row.zh, np.zh, np.object, row.zh, row.kind, combos=(f"{row.zh}+{np.key}",))
    (yesterday, en), *_ = lex.PAST
    c = Clause(PRONOUNS["我"], act, TENSES["past"], Phrase(yesterday, en))
    return pair(c.zh(), c.en(), c.combos())


def features(drawn: Pair) -> list[str]:
    """What a model can learn from a pair: its English words, adjacent words, and combinations."""
    english = tokens(drawn.en)
    return [*english, *(f"{one} {two}" for one, two in itertools.pairwise(["", *english])), *drawn.combos]


def build_train(r: Rng, seed: int, seen: set[str]) -> list[Pair]:
    """Sample the pairs of train so that rare words and combinations occur more often than in plain samples.

    The first candidate determines the pattern of the others, so that the frequency of patterns does not change.
    """
    counts: Counter[str] = Counter()

    def candidate(name: str = "") -> Pair:
        while True:
            part, drawn = draw(r, seed, name)
            if part == "train" and not {drawn.zh, drawn.en} & seen:
                return drawn

    def novelty(drawn: Pair) -> float:
        """A score that is high if features are rare so far. A sum would prefer long sentences, a mean short ones."""
        found = features(drawn)
        # correctly rounded, unlike sum and **, so that every Python and platform chooses the same pairs
        return math.fsum(1 / (1 + counts[feature]) for feature in found) / math.sqrt(len(found))

    pairs: list[Pair] = []
    while len(pairs) < SIZES["train"]:
        first = candidate()
        chosen = max([first, *(candidate(first.pattern) for _ in range(N_CANDIDATES - 1))], key=novelty)
        pairs.append(chosen)
        counts.update(features(chosen))
        seen |= {chosen.zh, chosen.en}
    return pairs


def build(seed: int) -> dict[str, list[Pair]]:
    """The corpus: train first, then dev and test, whose words occur in train."""
    r = Rng(seed)
    shown = demo_pair()
    seen = {shown.zh, shown.en}
    corpus: dict[str, list[Pair]] = {"train": build_train(r, seed, seen), "dev": [], "test": []}
    counts = Counter(symbol for one in corpus["train"] for symbol in [*one.zh, *tokens(one.en)])
    shared: Counter[str] = Counter()
    while any(len(corpus[part]) < SIZES[part] for part in ("dev", "test")):
        part, drawn = draw(r, seed)
        if part not in ("dev", "test") or len(corpus[part]) == SIZES[part] or {drawn.zh, drawn.en} & seen:
            continue
        held_out = [combo for combo in drawn.combos if part_of(seed, combo) != "train"]
        rare = any(counts[symbol] < MIN_COUNT for symbol in [*drawn.zh, *tokens(drawn.en)])
        if rare or any(shared[combo] == MAX_SHARED for combo in held_out):
            continue
        shared.update(held_out)
        corpus[part].append(drawn)
        seen |= {drawn.zh, drawn.en}
    return corpus


def write(corpus: dict[str, list[Pair]], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for part, pairs in corpus.items():
        (folder / f"{part}.zh").write_bytes("".join(one.zh + "\n" for one in pairs).encode())
        (folder / f"{part}.en").write_bytes("".join(one.en + "\n" for one in pairs).encode())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write a Chinese-English corpus from a grammar.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("data/zh-en"))
    options = parser.parse_args()
    write(build(options.seed), options.out)
