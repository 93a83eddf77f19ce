"""Languages by name: codes of BCP 47, ISO 639, FLORES and Marian, and the suffixes of file names.

The functions import langcodes themselves, because the import takes 60 ms and most commands do not need it.
"""

import functools
from pathlib import Path

# Suffixes of corpora that say what a file is for. ISO 639-3 has some of these codes too, such as `src` for a variety of
# Sardinian, but corpora in these languages are rarer than files of this name.
_ROLES = """
all bak bin bpe cor csv dev div doc hyp ids log low mem new old ori out pre que raw ref run seg sgm spm src sys tbx tgt
tmp tmx tok trg trn tst tsv txt val xml zip
"""
ROLES = frozenset(_ROLES.split())
# Varieties of Arabic, Hebrew, English and Chinese. py3langid is used without them, because short lines in a variety
# look like the main language.
VARIETIES = frozenset(["ary", "arz", "hbo", "pcm", "wuu", "yue"])
# Groups of languages that py3langid easily confuses.
CONFUSED = ({"da", "no", "nn"}, {"zh", "ja"}, {"bs", "hr", "sr"}, {"id", "ms"})
NO_LANGUAGE = frozenset([None, "mul", "zxx"])  # for text of an unknown language, of several languages, or of none


@functools.cache
def language_code(name: str) -> str:
    """Return the BCP 47 code of a language, or "" if `name` names no language.

    Reads codes of BCP 47, ISO 639-1 and ISO 639-3, such as de, deu and zh-Hant, codes of FLORES, such as deu_Latn, and
    Marian's tags, such as `>>deu<<`. A script that is usual for the language is left out: deu_Latn gives de.
    """
    import langcodes

    tag = name.removeprefix(">>").removesuffix("<<").replace("_", "-")
    if not langcodes.tag_is_valid(tag):
        return ""
    language = langcodes.Language.get(langcodes.standardize_tag(tag))
    return "" if language.language in NO_LANGUAGE else language.simplify_script().to_tag()


def language_of_file(path: Path) -> str:
    """Return the code of the language in a file name, or "".

    It is the last suffix that names a language, such as zh-CN in `test.zh-CN.gz` and de in `train.de.tok`. Suffixes in
    `ROLES` are passed over, because they say what the file is for. FLORES names its files as `deu_Latn.dev`.
    """
    stem, *suffixes = path.name.split(".")
    if "_" in stem:
        suffixes.insert(0, stem)
    for suffix in reversed(suffixes):
        code = "" if suffix.lower() in ROLES else language_code(suffix)
        if code:
            return code
    return ""


@functools.cache
def base_language(name: str) -> str:
    """Return the code of a language without region and script: zh for zh-CN, zho_Hans and cmn.

    The code of a language that stands for its macrolanguage is replaced, such as arb by ar. If `name` names no
    language, return the part before the first hyphen in lower case.
    """
    import langcodes

    code = language_code(name)
    if not code:
        return name.replace("_", "-").partition("-")[0].lower()
    return langcodes.Language.get(langcodes.standardize_tag(code, macro=True)).language or ""


def source_and_target(direction: str) -> tuple[str, str]:
    """Return the source and the target language of a direction such as de-en. A single code is the target."""
    source, _, target = direction.rpartition("-")
    return source, target


def target_of(direction: str) -> str:
    """Return the target language of a direction such as de-en."""
    return source_and_target(direction)[1]


def is_regional_chinese(name: str) -> bool:
    """Return whether a name means a Chinese language except Mandarin and Cantonese, such as Wu or Literary Chinese."""
    return script_of(name) in ("Hans", "Hant") and base_language(name) not in ("zh", "yue")


@functools.cache
def script_of(name: str) -> str:
    """Return the ISO 15924 code of the script in which a language is usually written, such as Latn; "" if unknown."""
    import langcodes

    code = language_code(name)
    if not code:
        return ""
    language = langcodes.Language.get(code).maximize()
    # langcodes takes a language that it does not know for one that is written as English in the United States.
    is_guessed = language.language != "en" and (language.script, language.territory) == ("Latn", "US")
    return "" if is_guessed else language.script or ""
