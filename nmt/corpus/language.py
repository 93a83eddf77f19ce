"""Tell which language and script a text is in, offline.

Uses two methods, because each is strong where the other is weak. Character n-grams learned from the two sides of the
corpus (Cavnar & Trenkle 1994, "N-gram-based text categorization", as a likelihood ratio) tell any two languages apart,
even in short lines, but cannot identify a third language. Frequent function words identify 23 languages, but need a
whole sentence. A line counts as in a third language only if, in addition, its n-grams are rare on its side.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

BITS = 18  # of the hash of an n-gram
SMOOTHING = 0.5  # added to each count
MAX_LLR = 5.0  # nats per n-gram: one unseen n-gram proves nothing
MIN_TOTAL = 25.0  # nats, below which a text is too short to tell its language
CLEAR, LEANING = 0.15, 0.03  # ratio beyond the middle of both typical ratios, as a share of their distance
RARE_SHARE = 0.25  # the n-grams of this share of a side's lines count as rare
N_IDENTIFIED = 5_000  # lines that are enough to tell the language of a side
N_OWN_WORDS = 150  # most frequent words of a side
MIN_SCRIPT_SHARE = 0.01  # of the lines of a side, for a script to be usual there
MIN_LETTERS = 4
WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")

SCRIPTS = {
    "Latin": "A-Za-zªºÀ-ÖØ-öø-ʯḀ-ỿ",
    "Cyrillic": "Ѐ-ԯ",
    "Greek": "Ͱ-Ͽἀ-῿",
    "Arabic": "؀-ۿݐ-ݿ",
    "Hebrew": "֐-׿",
    "Devanagari": "ऀ-ॿ",
    "Thai": "฀-๿",
    "Hangul": "가-힣ㄱ-ㆎ",
    "Kana": "ぁ-ヿ",
    "Han": "㐀-䶿一-鿿豈-﫿",
}
SCRIPT_PATTERNS = {name: re.compile(f"[{letters}]") for name, letters in SCRIPTS.items()}
LANGUAGE_OF_SCRIPT = {"Greek": "el", "Hebrew": "he", "Devanagari": "hi", "Thai": "th", "Hangul": "ko", "Han": "zh"}
FUNCTION_WORDS = {
    "en": "the of and to in is that it was for you he on with as his they at be this have from or had by not but what "
    "all were we when your can she there an which do their if will how them would like him into has her been who its "
    "did get made i i'm don't it's are me my our us does could should very",
    "de": "der die und den von zu das mit sich des auf für ist im dem nicht ein eine als auch es an werden aus er hat "
    "dass sie nach wird bei einer um am sind noch wie einem über einen so zum war haben nur oder aber vor zur bis mehr "
    "durch man sein wurde wenn ich du wir ihr mich dich mir dir uns kein keine habe bin bist kann was wo",
    "fr": "le la les de des et un une est que qui dans pour pas sur au aux ce il elle ne se plus par avec son sa ses "
    "mais ou nous vous je tu on cette ces leur sont été être avoir fait comme tout bien où du en très mon ma mes était "
    "suis ai as avons avez ont c'est j'ai n'est qu'il d'un d'une l'on à",
    "es": "el la los las de que y en un una es por con no para se su al lo como más pero sus le ya o este sí porque "
    "esta entre cuando muy sin sobre también me hasta hay donde quien desde todo nos durante uno ni contra otros ese "
    "eso ante ellos esto mí qué yo él del está son fue ser tiene era mi tu te",
    "it": "il la i le di che e è un una per non in con si da come sono ma anche del della dei delle al alla nel nella "
    "più lo gli su mi ha questo questa se o ci suo sua era essere molto io tu lui lei noi voi loro ho hai abbiamo "
    "quando dove perché cosa c'è l'ho così ancora",
    "pt": "o a os as de que e do da em um uma para com não é no na se por mais dos das como mas foi ao ele ela seu sua "
    "ou ser quando muito há nos já está eu também só pelo pela até isso entre era depois sem mesmo aos ter seus quem "
    "nas me esse eles você tem são minha meu",
    "nl": "de het een en van ik te dat die in je niet is hij zijn op aan met als voor maar er om ze dan zou of wat "
    "mijn men dit zo door over bij ook tot uit der naar kan haar toen heb hoe heeft hebben deze want nog wel geen was "
    "we wij jij worden werd",
    "sv": "och i att det som en på är av för med till den har de inte om ett han men var jag sig från vi så kan när år "
    "säger hon under också efter eller nu sin där vid mot ska skulle kommer ut får finns vara hade alla mig dig du",
    "da": "og i at det er en til på som med for den af de ikke der har et jeg han var vi om men fra så kan hun skal "
    "sig ved nu blev være havde også mig dig du min din hvad hvor vil efter når eller",
    "no": "og i det er en til på som med for den av de ikke har et jeg han var vi om men fra så kan hun skal seg ved "
    "nå ble være hadde også meg deg du min din hva hvor vil etter når eller noe",
    "fi": "ja on ei se että oli hän mutta kun ovat joka niin minä sinä mitä kuin myös jos ole olen tai vain sen tämä "
    "olla he me te minun sinun siitä nyt jo vielä mukaan sitten hänen mikä ette emme en",
    "pl": "i w na z się nie do to jest że o jak po ale od co za przez tak tym są dla czy może był już tylko być tego "
    "ma jego jej ich ja ty on ona my wy bardzo gdzie kiedy ze mnie cię mi mam było która który",
    "cs": "a je se v na že to s z do o i ve jsem by jak ale k po si za pro co tak který jako jsou být už jen nebo od "
    "má podle aby až při není byl bylo mě tě já ty on ona my vy kde když které jeho",
    "ro": "și în de la a cu că pe un o nu este din se mai pentru care ce sunt au fost am ai are dar sau lui ei el ea "
    "eu tu noi voi le ca al ale după fi foarte unde când prin acest această",
    "hu": "a az és hogy nem is egy ez meg van csak de ha volt már mint még el ki azt vagy én te ő mi ti ők lesz minden "
    "nagyon úgy ezt aki ami itt ott most nincs kell lehet után sem",
    "tr": "ve bir bu da de için ne o ile çok daha gibi ben sen biz siz onlar var yok mi mı mu değil ama olarak kadar "
    "sonra olan her şey en ya ki onu bana sana benim senin nasıl",
    "id": "yang dan di ini itu dengan untuk tidak dari dalam akan pada juga ke saya anda kamu dia mereka kami kita ada "
    "adalah bisa sudah atau karena oleh telah lebih apa siapa seperti",
    "vi": "và của là có không được cho các một những trong người đã với này tôi bạn anh cô ấy đó khi rất cũng như để ở "
    "từ đang sẽ vào làm chúng ta",
    "ru": "и в не на я что он с это как а по но из у за его так от вы она то мы для все мне было меня есть бы ты ещё "
    "их был уже или когда только если был была они нет да ему очень где этого",
    "uk": "і в не на я що він з це як а по але із у за його так від ви вона то ми для все мені було мене є би ти ще їх "
    "був вже або коли тільки якщо була вони немає та дуже де цього",
    "bg": "и в не на аз че той с това как а по но от у за го така вие тя то ние за всичко ми беше ме има би ти още ги "
    "бил вече или когато само ако била те няма да му много къде се са съм си",
    "ar": "في من على إلى أن هذا هذه ما لا كان مع عن هو هي التي الذي لم قد كل بعد أنا أنت نحن هل كيف لماذا",
    "fa": "و در به از که این است را با برای آن یک می ما من تو او هم تا خود شما بود باید چه",
}  # fmt: skip
WORD_SETS = {language: frozenset(words.split()) for language, words in FUNCTION_WORDS.items()}


@dataclass(frozen=True, eq=False)
class Languages:
    """What was learned about the languages of the two sides."""

    names: tuple[str, str]  # codes such as de; "" if unknown
    scripts: tuple[frozenset[str], frozenset[str]]  # usual ones
    own_words: tuple[frozenset[str], frozenset[str]]  # most frequent words
    log_probs: NDArray[np.float32]  # (2, 2^BITS), of each n-gram on each side
    typical: tuple[float, float]  # median log-likelihood ratio per n-gram (source against target) of each side's lines
    rare: tuple[float, float]  # log-probability per n-gram below which RARE_SHARE of each side's lines are

    @property
    def can_tell_apart(self) -> bool:
        return self.typical[0] - self.typical[1] > 0.5


def learn(source: Sequence[str], target: Sequence[str]) -> Languages:
    """Learn the languages of the two sides from a sample of their lines."""
    sides = source, target
    grams = [ngrams(side) for side in sides]
    few = [side[:: -(-len(side) // N_IDENTIFIED)] for side in sides]
    counts = [np.bincount(hashes.reshape(-1), minlength=2**BITS) + SMOOTHING for hashes, _ in grams]
    log_probs = np.stack([np.log(count / count.sum()) for count in counts]).astype(np.float32)
    ratios = [per_line(ratio_of(log_probs), *of_side) for of_side in grams]
    own = [per_line(log_probs[side], *grams[side]) for side in (0, 1)]
    return Languages(
        names=(identify(few[0]), identify(few[1])),
        scripts=(usual_scripts(few[0]), usual_scripts(few[1])),
        own_words=(frequent_words(few[0]), frequent_words(few[1])),
        log_probs=log_probs,
        typical=(float(np.median(ratios[0])), float(np.median(ratios[1]))),
        rare=(float(np.quantile(own[0], RARE_SHARE)), float(np.quantile(own[1], RARE_SHARE))),
    )


def ratio_of(log_probs: NDArray[np.float32]) -> NDArray[np.float32]:
    """The log-likelihood ratio of each n-gram, source against target."""
    return np.asarray(np.clip(log_probs[0] - log_probs[1], -MAX_LLR, MAX_LLR))


def ngrams(texts: Sequence[str]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """Hashes of the n-grams (1 to 3 characters) that begin at each position: (3, N); the start of each line: (n,).

    Text is lower-cased, and all digits count as the same. The newlines before and after a line are part of n-grams.
    """
    joined = "\n".join(["", *texts, "", "", ""]).lower()
    codes = np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), np.uint32)
    codes = np.where((codes >= 48) & (codes <= 57), np.uint32(48), codes)
    ends = np.flatnonzero(codes[:-2] == 10)
    size = int(ends[len(texts)])
    hashes = np.empty((3, size), np.uint32)
    mixed = np.zeros(size, np.uint32)
    third = np.where(codes[1 : size + 1] == 10, np.uint32(10), codes[2 : size + 2])  # not from the next line
    for n, character in enumerate((codes[:size], codes[1 : size + 1], third)):
        mixed = (mixed ^ character) * np.uint32(0x9E3779B1)
        mixed ^= mixed >> np.uint32(15)
        hashes[n] = (mixed * np.uint32(0x85EBCA6B + 2 * n)) >> np.uint32(32 - BITS)
    return hashes, ends[: len(texts)]


def per_line(values: NDArray[np.float32], hashes: NDArray[np.uint32], starts: NDArray[np.int64]) -> NDArray[np.float32]:
    """The mean value of the n-grams of each line."""
    places = values[hashes[0]]
    for n in (1, 2):
        places += values[hashes[n]]
    lengths = np.diff(np.append(starts, len(places)))
    return np.asarray(np.add.reduceat(places, starts) / (3 * lengths), np.float32)


def compared(texts: Sequence[str], side: int, languages: Languages) -> tuple[NDArray[np.int8], NDArray[np.bool_]]:
    """Test whether lines are in the language of the other side, and whether their n-grams are rare on their own side.

    Args:
        side: 0 source, 1 target.
    Returns:
        2 if a line is clearly in the other side's language, 1 if perhaps, else 0: (n,); whether n-grams are rare: (n,).
    """
    hashes, starts = ngrams(texts)
    middle, distance = sum(languages.typical) / 2, languages.typical[0] - languages.typical[1]
    ratio = per_line(ratio_of(languages.log_probs), hashes, starts) - middle
    towards_other = ratio if side else -ratio
    total = towards_other * 3 * np.diff(np.append(starts, hashes.shape[1]))
    is_clear = (towards_other > CLEAR * distance) & (total > MIN_TOTAL)
    found = is_clear.astype(np.int8) + (towards_other > LEANING * distance)
    is_rare = per_line(languages.log_probs[side], hashes, starts) < languages.rare[side]
    return np.asarray(found * languages.can_tell_apart, np.int8), is_rare


def third_language(text: str, side: int, languages: Languages) -> str:
    """The code of a line's language if it is clearly neither side's language; else "".

    Args:
        side: 0 source, 1 target.
    """
    words = WORD.findall(text.lower())
    if len(words) < 3:
        return ""
    different = set(words)
    n_own = len(different & languages.own_words[side])
    found, name = max((len(different & known), name) for name, known in WORD_SETS.items())
    if name in languages.names or found < max(2, 0.3 * len(words)) or found < 2 * n_own + 2:
        return ""
    return name


def scripts_of(text: str) -> Counter[str]:
    """The number of letters of each script."""
    if text.isascii():
        return Counter(Latin=sum(map(str.isalpha, text)))
    return Counter({name: n for name, letters in SCRIPT_PATTERNS.items() if (n := len(letters.findall(text)))})


def main_script(text: str) -> str:
    """The script of most letters; "" if there are fewer than `MIN_LETTERS` of it."""
    counts = scripts_of(text)
    name, n = max(counts.items(), key=lambda item: item[1], default=("", 0))
    return name if n >= MIN_LETTERS else ""


def has_other_script(texts: Sequence[str], usual: frozenset[str]) -> NDArray[np.bool_]:
    """Which texts are mostly in a script that is not usual."""
    if not usual:
        return np.zeros(len(texts), bool)
    is_usual = re.compile(f"[{''.join(SCRIPTS[name] for name in usual)}]")

    def is_other(text: str) -> bool:
        if text.isascii() and "Latin" in usual:
            return False
        n_usual = len(is_usual.findall(text))  # few are enough: a Han character may be a word, as in Facebook在中国
        return 5 * n_usual < len(text) and 5 * n_usual < scripts_of(text).total() >= MIN_LETTERS

    return np.fromiter(map(is_other, texts), bool, len(texts))


def usual_scripts(texts: Sequence[str]) -> frozenset[str]:
    counts = Counter(map(main_script, texts))
    return frozenset(name for name, n in counts.items() if name and n >= max(2, MIN_SCRIPT_SHARE * len(texts)))


def frequent_words(texts: Sequence[str]) -> frozenset[str]:
    counts = Counter(word for text in texts for word in WORD.findall(text.lower()))
    return frozenset(word for word, _ in counts.most_common(N_OWN_WORDS))


def identify(texts: Sequence[str]) -> str:
    """The language of many lines, by their script or function words; "" if it cannot be identified."""
    scripts = Counter(map(main_script, texts))
    scripts.pop("", None)
    if not scripts:
        return ""
    (script, n), total = scripts.most_common(1)[0], scripts.total()
    if scripts["Kana"] > 0.2 * total:
        return "ja"
    if n > 0.5 * total and script in LANGUAGE_OF_SCRIPT:
        return LANGUAGE_OF_SCRIPT[script]
    words = Counter(word for text in texts for word in WORD.findall(text.lower()))
    shares = {name: sum(words[word] for word in known) / words.total() for name, known in WORD_SETS.items()}
    best = max(shares, key=shares.__getitem__)
    return best if shares[best] >= 0.15 else ""
