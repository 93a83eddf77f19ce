"""The words of the Chinese-English grammar (zh_en_grammar.py), English inflection, and a word-for-word gloss.

The tables are plain text: rows end in ";" or a new line, fields are separated by spaces, "|" or ",", and "_"
is a space inside an English phrase.
"""

from __future__ import annotations

from dataclasses import dataclass


def table(text: str) -> list[tuple[str, ...]]:
    """The rows of "a b c;d e f"; "-" is an empty field."""
    return [
        tuple("" if field == "-" else field.replace("_", " ") for field in row.split(" "))
        for row in text.strip().replace("\n", ";").split(";")
    ]


def columns(text: str) -> list[list[str]]:
    """The rows of a table with one row per line and "|" between fields."""
    return [[field.strip() for field in row.split("|")] for row in text.strip().splitlines()]


# ------------------------------------------------------------------------------------------------ nouns


def plural(noun: str) -> str:
    if noun == "child":
        return "children"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + ("es" if noun.endswith(("s", "x", "ch", "sh")) else "s")


def article(phrase: str) -> str:
    return ("an " if phrase[0] in "aeiou" else "a ") + phrase


@dataclass(frozen=True)
class Noun:
    zh: str
    measure: str
    en: str
    unit: str  # the container of a noun that is not counted itself: "a cup of tea", "a pair of shoes"
    kind: str

    @property
    def plural(self) -> str:
        return self.en if self.unit or self.kind == "subject" else plural(self.en)

    @property
    def many(self) -> str:
        """After a number: "apples", "cups of tea"."""
        return f"{plural(self.unit)} of {self.en}" if self.unit else self.plural

    @property
    def agr(self) -> str:
        """The agreement of the bare noun: "my shoes are", "my tea is"."""
        return "p" if self.unit and self.en.endswith("s") else "3"


# kind -> "Chinese measure-word English[/container]"
NOUN_ROWS = {
    "fruit": "苹果 个 apple;橙子 个 orange;西瓜 个 watermelon",
    "food": "鸡蛋 个 egg;面包 块 bread/piece;蛋糕 块 cake/piece;面条 碗 noodles/bowl;米饭 碗 rice/bowl",
    "drink": "茶 杯 tea/cup;咖啡 杯 coffee/cup;水 杯 water/glass;牛奶 杯 milk/glass",
    "clothes": "衬衫 件 shirt;裙子 条 skirt;外套 件 coat;毛衣 件 sweater;帽子 顶 hat;鞋子 双 shoes/pair",
    "reading": "书 本 book;杂志 本 magazine;报纸 份 newspaper;小说 本 novel;信 封 letter",
    "goods": "手机 部 phone;电脑 台 computer;照相机 台 camera;雨伞 把 umbrella;钥匙 把 key;"
    "书包 个 schoolbag;手表 块 watch;杯子 个 cup;礼物 份 gift",
    "vehicle": "自行车 辆 bicycle;汽车 辆 car",
    "furniture": "桌子 张 table;椅子 把 chair;沙发 张 sofa",
    "animal": "猫 只 cat;狗 只 dog;鸟 只 bird;马 匹 horse;熊猫 只 panda",
    "subject": "英语 - English;数学 - maths;历史 - history",
    "person": "老师 位 teacher;学生 个 student;医生 位 doctor;警察 个 police_officer;"
    "工人 个 worker;厨师 位 cook;画家 位 painter;歌手 位 singer;孩子 个 child;男孩 个 boy;"
    "女孩 个 girl",
}
GROUPS = {"pet": "猫 狗 鸟", "job": "老师 学生 医生 警察 工人 厨师 画家 歌手"}
NOUNS: dict[str, list[Noun]] = {}  # kind -> its nouns, and Chinese word -> only this noun
for _kind, _rows in NOUN_ROWS.items():
    for _zh, _measure, _en in table(_rows):
        _noun = Noun(_zh, _measure, _en.partition("/")[0], _en.partition("/")[2], _kind)
        NOUNS[_zh] = [_noun]
        NOUNS.setdefault(_kind, []).append(_noun)
for _kind, _rows in GROUPS.items():
    NOUNS[_kind] = [NOUNS[_zh][0] for _zh in _rows.split()]

# "Chinese subject object possessive agreement"; agreement is 1 (am), 3 (is) or p (are).
PRONOUNS = table("我 I me my 1;你 you you your p;他 he him his 3;她 she her her 3")
PRONOUNS += table("我们 we us our p;他们 they them their p")
# The last field is the pronoun for a second mention.
NAMES = table("小明 Xiaoming 他;小红 Xiaohong 她;李华 Li_Hua 他;王芳 Wang_Fang 她")
NAMES += table("大卫 David 他;玛丽 Mary 她;汤姆 Tom 他;安娜 Anna 她")
KIN = table("妈妈 mother 她;爸爸 father 他;哥哥 older_brother 他;姐姐 older_sister 她")
KIN += table("弟弟 younger_brother 他;妹妹 younger_sister 她;爷爷 grandfather 他")
KIN += table("奶奶 grandmother 她;叔叔 uncle 他;阿姨 aunt 她")

# ----------------------------------------------------------------------------------------------- places

# "Chinese locative-suffix preposition English"; public places may stand next to each other, private ones
# may have an owner.
PUBLIC = table("公园 里 in park;学校 里 at school;图书馆 里 in library;医院 里 in hospital;商店 里 in shop")
PUBLIC += table("超市 里 in supermarket;饭馆 里 in restaurant;火车站 - at train_station;银行 里 in bank")
PUBLIC += table("邮局 里 at post_office;酒店 里 in hotel;书店 里 in bookshop;动物园 里 at zoo")
PRIVATE = table("厨房 里 in kitchen;办公室 里 in office;花园 里 in garden;房间 里 in room")
OTHERS = table("机场 - at airport;海边 - at beach;农场 里 on farm;教室 里 in classroom")
PLACES = {row[0]: row for row in (*PUBLIC, *PRIVATE, *OTHERS)}
CITIES = table("北京 Beijing;上海 Shanghai;广州 Guangzhou;南京 Nanjing;成都 Chengdu;武汉 Wuhan")
LANDMARKS = table("旁边 next_to;对面 across_from;后面 behind;附近 near")

# Where things can be: "Chinese relation preposition English kinds,of,things".
SPOTS = table("""
桌子 上 on table reading,goods,fruit
桌子 下面 under table goods,pet
椅子 上 on chair reading,goods,clothes,pet
椅子 下面 under chair goods,pet
床 上 on bed reading,goods,clothes,pet
床 下面 under bed goods,pet
沙发 上 on sofa reading,goods,clothes,pet
沙发 后面 behind sofa goods,pet
书包 里 in schoolbag reading,goods,fruit
箱子 里 in box reading,goods,clothes,fruit
冰箱 里 in fridge fruit,food,drink
树 下面 under tree animal,vehicle
汽车 里 in car goods,clothes
""")

# ------------------------------------------------------------------------------------------------ verbs


@dataclass(frozen=True)
class Verb:
    base: str
    third: str
    past: str
    part: str
    ing: str

    def present(self, agr: str) -> str:
        return self.third if agr == "3" else self.base


def verb(row: str) -> Verb:
    """The forms of "eat, ate, eaten" or of a regular verb; in "look for" the first word is inflected."""
    phrase, *irregular = row.split(", ")
    base, space, tail = phrase.partition(" ")
    tail = space + tail
    third = base + "es" if base.endswith("o") else plural(base)
    past, part = irregular or [base.removesuffix("e") + "ed" + tail] * 2
    stem = base if base.endswith("ee") else base.removesuffix("e")
    doubled = stem[-1] if base in ("run", "swim", "put", "plan") else ""
    return Verb(phrase, third + tail, past, part, f"{stem}{doubled}ing{tail}")


@dataclass(frozen=True)
class Row:
    """A verb with the nouns that may be its object and the places where it is done."""

    zh: str
    verb: Verb
    nouns: tuple[Noun, ...]
    kind: str = ""
    places: tuple[str, ...] = ()


def rows(text: str) -> list[Row]:
    """Read "Chinese | English base[, past, participle] | objects | kind | places"."""
    found = []
    for zh, en, objects, *rest in columns(text):
        nouns = tuple(noun for key in objects.split() for noun in NOUNS[key])
        kind, places = [*rest, "", ""][:2]
        found.append(Row(zh, verb(en), nouns, kind, tuple(places.split())))
    return found


# Kinds: d(ynamic), n (dynamic, but never a habit), p(unctual), s(tative).  The place 城 is any city.
VERBS = rows("""
吃 | eat, ate, eaten | fruit food | d | 饭馆 家 厨房 公园 学校 办公室
喝 | drink, drank, drunk | drink | d | 饭馆 家 厨房 办公室 花园
买 | buy, bought, bought | fruit food drink | d | 商店 超市 火车站
买 | buy, bought, bought | clothes goods vehicle furniture | d | 商店 超市 城
买 | buy, bought, bought | 书 杂志 报纸 小说 | d | 书店 机场 火车站
卖 | sell, sold, sold | fruit clothes goods vehicle furniture | d | 商店 公园 火车站 城
看 | read, read, read | reading | d | 图书馆 家 教室 公园 办公室 房间 花园 机场
写 | write, wrote, written | 信 小说 | d | 图书馆 家 教室 办公室 房间
借 | borrow | 书 杂志 小说 | d | 图书馆 学校
借 | borrow | 雨伞 自行车 照相机 电脑 汽车 | n | 学校 办公室 酒店
洗 | wash | 衬衫 裙子 外套 毛衣 杯子 苹果 汽车 | d | 家 厨房 花园
修 | repair | vehicle | d | 家 商店 学校 农场
修 | repair | 电脑 手机 照相机 手表 雨伞 椅子 桌子 | d | 家 商店 办公室 学校
找 | look for | 手机 雨伞 书包 手表 钥匙 猫 狗 书 帽子 | n | 家 公园 学校 办公室 教室 房间
找到 | find, found, found | 手机 雨伞 书包 手表 钥匙 猫 狗 书 帽子 | p | 家 公园 学校 办公室 教室
丢 | lose, lost, lost | 手机 雨伞 书包 手表 照相机 钥匙 帽子 | p | 公园 学校 火车站 机场 超市 城
画 | draw, drew, drawn | animal | d | 公园 教室 家 动物园 花园 农场
看见 | see, saw, seen | animal | p | 公园 动物园 农场 花园
看见 | see, saw, seen | person | p | 公园 超市 银行 机场 火车站 医院 城
喂 | feed, fed, fed | animal | d | 动物园 农场 公园
做 | make, made, made | 面包 蛋糕 面条 | d | 厨房 家 饭馆
做 | make, made, made | 椅子 桌子 裙子 帽子 | d | 家 学校
寄 | send, sent, sent | 信 礼物 书 杂志 | d | 邮局 酒店 机场
帮助 | help | person | d | 学校 医院 办公室 火车站 机场 图书馆
等 | wait for | person | d | 火车站 机场 公园 学校 饭馆 酒店
遇到 | meet, met, met | person | p | 公园 超市 银行 机场 火车站 图书馆 海边 城
认识 | know, knew, known | person | s
喜欢 | like | fruit food drink clothes reading animal vehicle person subject | s
学 | study, studied, studied | subject | d | 学校 图书馆 家 教室 城
""")
# Verbs of 把 and 被 sentences, which have a definite object: put somewhere, hand over, complete, take away.
PUT = rows("""
放在 | put, put, put | reading goods clothes fruit
""")
GIVE = rows("""
送给 | give, gave, given | goods reading clothes
借给 | lend, lent, lent | 书 杂志 小说 手机 电脑 照相机 雨伞 书包 手表 杯子 vehicle
还给 | return | 书 杂志 小说 手机 电脑 照相机 雨伞 书包 手表 杯子 vehicle
""")
RESULTS = rows("""
洗干净 | wash | 衬衫 裙子 外套 毛衣 杯子 苹果 汽车 鞋子
修好 | repair | vehicle 电脑 手机 照相机 手表 雨伞 椅子 桌子
打破 | break, broke, broken | 杯子 手机 手表 照相机
吃完 | eat up, ate up, eaten up | fruit food
喝完 | drink up, drank up, drunk up | drink
看完 | finish, finished, finished | reading
卖掉 | sell, sold, sold | vehicle furniture clothes 手机 电脑 照相机 手表
""")
STEAL = rows("""
偷走 | steal, stole, stolen | goods vehicle
拿走 | take away, took away, taken away | goods reading clothes
借走 | borrow | 书 雨伞 vehicle 照相机
""")
WANT, PLAN = verb("want"), verb("plan")
# Actions with a fixed object: "verb | object | English base[, past, participle] | English object | places".
FIXED = columns("""
跑 | 步 | run, ran, run | | 公园 学校 海边
游 | 泳 | swim, swam, swum | | 学校 酒店 海边
唱 | 歌 | sing, sang, sung | | 公园 教室 家 海边
跳 | 舞 | dance | | 公园 酒店 学校 海边
睡 | 觉 | sleep, slept, slept | | 家 房间 酒店 火车站
工作 | | work | | 医院 银行 农场 酒店 机场 邮局 城
打 | 篮球 | play | basketball | 公园 学校
踢 | 足球 | play | football | 公园 学校 海边
弹 | 钢琴 | play | the piano | 家 教室 酒店
下 | 棋 | play | chess | 公园 家 学校 花园
看 | 电视 | watch | TV | 家 房间 酒店
听 | 音乐 | listen to | music | 家 房间 花园 公园 海边
做 | 作业 | do, did, done | homework | 家 图书馆 教室
做 | 饭 | cook | | 厨房 家 饭馆
散 | 步 | take, took, taken | a walk | 公园 海边 花园 农场
吃 | 早饭 | eat, ate, eaten | breakfast | 家 饭馆 酒店 学校
吃 | 晚饭 | eat, ate, eaten | dinner | 家 饭馆 酒店 城
打扫 | 房间 | clean | the room |
打扫 | 教室 | clean | the classroom |
""")


@dataclass(frozen=True)
class Tense:
    """Chinese before and after the verb, English auxiliary and verb group, styles of the object.

    In `group`, {v} is the verb that carries the tense; {base}, {ing} and {part} are forms of the main verb.
    """

    before: str
    after: str
    aux: str
    group: str
    styles: tuple[str, ...]


TENSES = {
    name: Tense(before.strip("-"), after.strip("-"), aux, group, tuple(styles.split()))
    for name, before, after, aux, group, styles in columns("""
past | - | 了 | did | {v} | num num num def rel some bare
still | 还是 | 了 | did | still {v} | num def
didnot | 没 | - | did | not {v} | def bare
hab | - | - | do | {v} | bare bare num
like | - | - | do | {v} | bare bare def rel
often | 常常 | - | do | often {v} | bare
always | 总是 | - | do | always {v} | bare
sometimes | 有时候 | - | do | sometimes {v} | bare
not | 不 | - | do | not {v} | bare bare def rel
prog | 正在 | - | be | {ing} | num def bare
will | 会 | - | will | {base} | num def bare
wont | 不会 | - | will | not {base} | def bare
going | 要 | - | be | going to {base} | num num def bare
plan | 打算 | - | do | {v} to {base} | num num def bare
want | 想 | - | do | {v} to {base} | num num def bare
notwant | 不想 | - | do | not {v} to {base} | def bare
can | 可以 | - | can | {base} | num def bare
should | 应该 | - | should | {base} | num def bare
exp | - | 过 | have | {part} | def bare
already | 已经 | 了 | have | already {part} | num def
""")
}

# -------------------------------------------------------------------------- adjectives, times, numbers


@dataclass(frozen=True)
class Adjective:
    zh: str
    en: str
    more: str
    before: tuple[str, ...]  # kinds of nouns that it can precede
    said_of: tuple[str, ...]  # kinds of subjects that it can describe

    @property
    def attribute(self) -> str:
        """The form before a noun: a one-syllable adjective stays bare, a longer one takes 的."""
        return self.zh if len(self.zh) == 1 else self.zh + "的"


ADJECTIVES = [
    Adjective(zh, en, more, tuple(before.split()), tuple(said_of.split()))
    for zh, en, more, before, said_of in columns("""
大 | big | bigger | animal fruit furniture | animal fruit furniture city place
小 | small | smaller | animal fruit furniture | animal fruit furniture city place
新 | new | newer | clothes goods vehicle furniture | clothes goods vehicle furniture
旧 | old | older | clothes goods vehicle furniture | clothes goods vehicle furniture
漂亮 | beautiful | more beautiful | clothes | clothes city place
有意思 | interesting | more interesting | reading | reading
便宜 | cheap | cheaper | goods clothes vehicle furniture | goods clothes vehicle furniture fruit
贵 | expensive | more expensive | | goods clothes vehicle furniture fruit
重 | heavy | heavier | | furniture goods
好吃 | delicious | more delicious | | fruit food
可爱 | cute | cuter | animal | animal
安静 | quiet | quieter | | place city
年轻 | young | younger | person | person
聪明 | clever | cleverer | person | person
友好 | friendly | friendlier | person | person
高 | tall | taller | | person
忙 | busy | busier | | state
累 | tired | more tired | | state
饿 | hungry | hungrier | | state
渴 | thirsty | thirstier | | state
难过 | sad | sadder | | state
高兴 | happy | happier | | state
生气 | angry | angrier | | state
""")
]
OPPOSITES = {"大": "小", "小": "大", "新": "旧", "旧": "新", "便宜": "贵", "贵": "便宜"}
COLOURS = table("红色 red;蓝色 blue;黑色 black;白色 white;黄色 yellow;绿色 green")
COLOURED = ("clothes", "vehicle", "furniture")
DEGREES = table("很 very;非常 really;太 too;不 not")
NUMBERS = table("一 one;两 two;三 three;四 four;五 five;六 six;七 seven;八 eight;九 nine;十 ten")
COUNT = {row[0]: row[1] for row in NUMBERS}
WEEKDAYS = table("星期一 Monday;星期二 Tuesday;星期三 Wednesday;星期四 Thursday")
WEEKDAYS += table("星期五 Friday;星期六 Saturday;星期天 Sunday")
PAST = table("昨天 yesterday;前天 the_day_before_yesterday;昨天晚上 yesterday_evening")
PAST += table("上个星期 last_week;上个月 last_month")
FUTURE = table("明天 tomorrow;后天 the_day_after_tomorrow;明天早上 tomorrow_morning")
FUTURE += table("下个星期 next_week;下个月 next_month")
HABIT = table("每天 every_day;每天晚饭以后 after_dinner_every_day")
PARTS_OF_DAY = table("早上 morning;下午 afternoon;晚上 evening")
HOURS = {"早上": "六 七 八 九 十", "下午": "一 两 三 四 五", "晚上": "六 七 八 九 十"}
SPANS = table("天 day;个星期 week;个月 month")
CONDITIONS = table("下雨 it_rains;下雪 it_snows")
CONDITIONS += table("天气很好 the_weather_is_very_good;天气很冷 the_weather_is_very_cold")
WAYS = table("坐火车 by_train;坐飞机 by_plane;开车 by_car")

# ------------------------------------------------------------------------------------------------- gloss

# Function words and other words that no table lists; "-" marks a word without an English equivalent.
GLOSSES = {
    row[0]: row[1]
    for row in table("""
的 's;了 -;过 -;吗 -;吧 -;把 -;得 -;在 in;和 and;一起 together;比 than;没有 not_have;那么 so;一样 same;有 have
是 is;没 not;这 this;那 that;这些 these;那些 those;一些 some;很多 many;什么 what;谁 who;哪里 where;为什么 why
几 how_many;什么时候 when;因为 because;所以 so;如果 if;就 then;虽然 although;但是 but;还是 still;的时候 when
一边 while;得多 much;给 to;从 from;去 go;会 will;要 want;想 want;打算 plan;可以 can;应该 should;常常 often
总是 always;有时候 sometimes;已经 already;正在 is;正 is;觉得 think;希望 hope;让 tell;请 please;别 not
每天 every_day;每个 every;周末 weekend;今天 today;前 ago;后 later;以后 after;上个 last;下个 next;点 o'clock
被 by;里 in;上 on;下面 under;家 home;下雨 rain;下雪 snow;冷 cold;好 good;快 fast;天气 weather;时间 time
钱 money;们 -;穿 wear;戴 wear;一 a;个 -
""")
}
for _table in (
    PRONOUNS,
    NAMES,
    KIN,
    CITIES,
    LANDMARKS,
    COLOURS,
    DEGREES,
    NUMBERS[1:],
    WEEKDAYS,
    PAST,
    FUTURE,
):
    GLOSSES.update({_row[0]: _row[1] for _row in _table})
for _table in (PARTS_OF_DAY, SPANS, WAYS):
    GLOSSES.update({_row[0]: _row[1] for _row in _table})
for _zh, _en in WEEKDAYS:  # otherwise 上个星期五 would be split into 上个星期 and 五
    GLOSSES.update({f"上个{_zh}": f"last {_en}", f"下个{_zh}": f"next {_en}"})
for _nouns in NOUNS.values():
    GLOSSES.update({_noun.measure: "" for _noun in _nouns} | {_noun.zh: _noun.en for _noun in _nouns})
GLOSSES.update({_row[0]: _row[3] for _row in (*PLACES.values(), *SPOTS)})
GLOSSES.update({_adjective.zh: _adjective.en for _adjective in ADJECTIVES})
for _v, _o, _forms, _en, _ in FIXED:
    GLOSSES.update({_o: _en, _v: verb(_forms).base})
GLOSSES.update({_verb.zh: _verb.verb.base for _verb in (*RESULTS, *STEAL, *GIVE, *PUT, *VERBS)})


def segment(chinese: str) -> list[str]:
    """Split by the longest match from the left; a character that begins no known word is a word."""
    found, start, longest = [], 0, max(map(len, GLOSSES))
    while start < len(chinese):
        sizes = (size for size in range(longest, 0, -1) if chinese[start : start + size] in GLOSSES)
        size = next(sizes, 1)
        found.append(chinese[start : start + size])
        start += size
    return found


def gloss(chinese: str) -> str:
    """Replace each word by its usual English, in Chinese order: a translation without grammar."""
    english = " ".join(filter(None, (GLOSSES.get(word, word) for word in segment(chinese[:-1]))))
    english = english.replace(" 's", "'s").replace(" ，", ",")
    return english[:1].upper() + english[1:] + {"。": ".", "？": "?"}.get(chinese[-1:], "")
