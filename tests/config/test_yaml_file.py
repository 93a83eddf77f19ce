"""Config files: strict YAML 1.2, error messages that list all faults with their lines, dumping and loading."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from configs import MINIMAL, cases, fault, load
from nmt.config import check_config, dump_config, load_config
from nmt.config.yaml_file import MAX_CONFIG_BYTES
from nmt.errors import ConfigError

NUMBERS = ["3e-4", "1E-3", "5.e-1", ".5", "2", "+0.25"]
WORDS = ["no", "yes", "on", "2024-01-01", "12:30:45", "1_000", "0o17", "=", "<<"]  # not in YAML 1.1


@pytest.mark.parametrize("text", NUMBERS)
def test_numbers_are_those_of_yaml_1_2(folder: Path, text: str) -> None:
    config = load(folder, f"{MINIMAL}train: {{lr: {text}}}")
    assert config.train.lr == float(text)


@pytest.mark.parametrize("text", ["true", "TRUE", "false", "False"])
def test_booleans_are_those_of_yaml_1_2(folder: Path, text: str) -> None:
    config = load(folder, MINIMAL, f"data.drop_blank={text}")
    assert config.data.drop_blank is (text.lower() == "true")


@pytest.mark.parametrize("text", ["null", "Null", "~", ""])
def test_null_is_that_of_yaml_1_2(folder: Path, text: str) -> None:
    config = load(folder, f"{MINIMAL}train: {{max_steps: 5}}", f"train.max_steps={text}")
    assert config.train.max_steps is None


@pytest.mark.parametrize("word", WORDS)
def test_other_words_are_text(folder: Path, word: str) -> None:
    text = MINIMAL.replace("run: r", f"run: {word}")
    assert load(folder, text).run == word


def test_a_byte_order_mark_and_dos_line_ends_are_accepted(folder: Path) -> None:
    text = "\ufeff" + MINIMAL.replace("\n", "\r\n")
    assert load(folder, text).run == "r"


@pytest.mark.parametrize("text", ["- a\n- b\n", "null", "5", "word", "!!set {a, b}"])
def test_a_config_that_is_not_a_mapping_is_refused(folder: Path, text: str) -> None:
    assert fault(folder, text) == "demo.yaml: a config must be a mapping of keys to values"


# --- what is no config


def test_an_empty_config_lacks_what_is_required(folder: Path) -> None:
    assert fault(folder, "# nothing yet\n") == "demo.yaml: 'run' is missing\ndemo.yaml: 'data' is missing"


# A bar is a line end.
MALFORMED = """
run: r|data: [1, 2| → demo.yaml:3: not valid YAML: expected ',' or ']'
run: r|\tdata: 1| → demo.yaml:2: not valid YAML: found character '\\t'
run: r|  data: 1| → demo.yaml:2: not valid YAML: mapping values are not allowed here
run: &a r|seed: *a| → demo.yaml:2: not valid YAML: a config has no aliases
run: r|---|run: s| → demo.yaml:2: not valid YAML: but found another document
? [a, b]|: c| → demo.yaml:1: not valid YAML: found unhashable key
run: !!python/object:os.system x| → demo.yaml:1: not valid YAML: could not determine a constructor
run: r\0| → demo.yaml: not valid YAML: unacceptable character #x0000
run: !!float x| → demo.yaml: not valid YAML: could not convert string to float: 'x'
run: !!bool maybe| → demo.yaml: not valid YAML:
run: !!timestamp soon| → demo.yaml: not valid YAML:
"""


@pytest.mark.parametrize(("text", "expected"), cases(MALFORMED))
def test_malformed_yaml_is_refused_with_its_line(folder: Path, text: str, expected: str) -> None:
    message = fault(folder, text.replace("|", "\n"))
    place, _, problem = expected.partition("not valid YAML:")
    assert message.startswith(f"{place}not valid YAML: ")
    assert problem.strip() in message
    assert "\n" not in message


# By what the message says.
TOO_MUCH_FOR_YAML = {
    "can't decode byte 0xff": b"run: \xff\n",
    "Exceeds the limit": b"seed: " + b"9" * 5000,
    "recursion": b"[" * 1500,
}


@pytest.mark.parametrize("problem", TOO_MUCH_FOR_YAML)
def test_what_is_no_text_or_too_much_is_refused(folder: Path, problem: str) -> None:
    message = fault(folder, TOO_MUCH_FOR_YAML[problem])
    assert message.startswith("demo.yaml: not valid YAML: ")
    assert problem in message
    assert "\n" not in message


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*absent\.yaml: No such file or directory") as caught:
        load_config(tmp_path / "absent.yaml")
    assert caught.value.exit_code == 2
    assert caught.value.hint == "give the path of a config file"
    with pytest.raises(ConfigError, match="Is a directory"):
        load_config(tmp_path)


def test_a_file_with_too_many_bytes_is_refused(folder: Path) -> None:
    comment = "#" * (MAX_CONFIG_BYTES - len(MINIMAL))
    assert load(folder, MINIMAL + comment).run == "r"
    message = fault(folder, MINIMAL + comment + "#")
    assert message == "demo.yaml has over 100,000 bytes, too many for a config"


def with_unknown_keys(n: int) -> str:
    unknown = [f"k{i}: 1\n" for i in range(n)]
    return MINIMAL + "".join(unknown)


@pytest.mark.parametrize(("n", "n_left"), [(500, "480"), (5000, "4,980")])
def test_of_many_faults_only_some_are_listed(folder: Path, n: int, n_left: str) -> None:
    lines = fault(folder, with_unknown_keys(n)).splitlines()
    assert len(lines) == 21
    assert lines[0].endswith(": unknown key 'k0'")
    assert lines[-1] == f"demo.yaml: and {n_left} more"


def test_a_long_key_is_cut(folder: Path) -> None:
    key = "k" * 1000
    message = fault(folder, f"{MINIMAL}{key}: 1\n")
    assert len(message) < 200


def test_all_faults_are_reported_at_once_with_their_lines(folder: Path) -> None:
    text = "run: r\nseed: -1\ndata:\n  train:\n    target: a\ntrain:\n  lr: x\n  warmupp: 3\nxyzzy: {}\n"
    faults = fault(folder, text, "decode.beam=0").splitlines()
    assert sorted(faults) == [
        "command line: 'decode.beam': input should be greater than or equal to 1, got 0",
        "demo.yaml:2: 'seed': input should be greater than or equal to 0, got -1",
        "demo.yaml:4: 'data.train.source' is missing",
        "demo.yaml:7: 'train.lr': input should be a valid number, unable to parse string as a number, got 'x'",
        "demo.yaml:8: unknown key 'train.warmupp' (did you mean 'train.warmup'?)",
        "demo.yaml:9: unknown key 'xyzzy'",
    ]


WRONG_KEYS = """
train: {warmpu: 3} → demo.yaml:3: unknown key 'train.warmpu' (did you mean 'train.warmup'?)
lr: 3 → demo.yaml:3: unknown key 'lr' (did you mean 'train.lr'?)
tokeniser: {} → demo.yaml:3: unknown key 'tokeniser' (did you mean 'tokenizer'?)
xyzzy: 3 → demo.yaml:3: unknown key 'xyzzy'
<<: {seed: 3} → demo.yaml:3: unknown key '<<'
1: 2 → demo.yaml:3: '1': keys should be strings, got 1
run: b → demo.yaml:3: duplicate key 'run'
"""


@pytest.mark.parametrize(("text", "message"), cases(WRONG_KEYS))
def test_an_unknown_key_and_a_second_one_are_refused(folder: Path, text: str, message: str) -> None:
    result = fault(folder, MINIMAL + text)
    assert result == message


def test_a_second_key_in_a_section_is_refused_with_its_line(folder: Path) -> None:
    text = "train:\n  lr: 1\n  warmup: 2\n  lr: 3\n"
    result = fault(folder, MINIMAL + text)
    assert result == "demo.yaml:6: duplicate key 'train.lr'"


def test_the_last_override_of_a_setting_counts(folder: Path) -> None:
    config = load(folder, MINIMAL + "train: {lr: oops, warmup: 7}\n", "train.lr=3e-4", "train.lr=5e-4")
    assert config.train.lr == 5e-4
    assert config.train.warmup == 7


def test_only_the_first_equals_sign_separates(folder: Path) -> None:
    assert load(folder, MINIMAL, "run=runs/a=b").run == "runs/a=b"


def test_an_override_makes_a_section(folder: Path) -> None:
    config = load(folder, MINIMAL, "data.test.source=[t1.de, t2.de]", "data.test.target=[t.en]")
    (test,) = config.data.test
    assert test.source == ("t1.de", "t2.de")
    result = load(folder, MINIMAL + "decode: 5\n", "decode.beam=2").decode.beam
    assert result == 2


def test_an_override_replaces_a_section(folder: Path) -> None:
    config = load(folder, MINIMAL + "decode: {alpha: 2}\n", "decode={beam: 3}")
    assert config.decode.beam == 3
    assert config.decode.alpha == 1.0


# --- overrides


@pytest.mark.parametrize("override", ["train.lr", "=3", "", "3e-4"])
def test_an_argument_without_key_and_value_is_refused(folder: Path, override: str) -> None:
    with pytest.raises(ConfigError, match=f"^'{override}' is not a setting$") as caught:
        load(folder, MINIMAL, override)
    assert "key=value" in caught.value.hint


@pytest.mark.parametrize("value", ["[1, 2", "*x", "\x00", "!!float x", "9" * 5000, "[" * 1500])
def test_an_override_that_is_not_yaml_is_refused(folder: Path, value: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(folder, MINIMAL, f"run={value}")
    result = str(caught.value)
    assert result == f"'run={value}': the value is not valid YAML"
    assert caught.value.hint == "quote it"


def test_faults_of_overrides_name_the_command_line(folder: Path) -> None:
    unknown = "command line: unknown key 'train.lrr' (did you mean 'train.lr'?)"
    result = fault(folder, MINIMAL, "train.lrr=1")
    assert result == unknown
    contradiction = "command line: d_model (256) is not divisible by n_heads (5)"
    assert fault(folder, MINIMAL, "model.n_heads=5") == contradiction


# Any text, numbers, and words that a YAML parser may take for something else.
ANY = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)
DIGITS = st.from_regex(r"[-+]?[0-9.]{1,4}([eE][-+]?[0-9]{1,2})?", fullmatch=True)
SPECIAL = st.sampled_from(["no", "yes", "on", "~", "null", "true", "0x1", "0o7", "1:30", "=", "<<", "-", "{a:b}", "ü"])
TEXTS = ANY | DIGITS | SPECIAL
CODES = st.sampled_from(["", "no", "yes", "on", "null", "true", "zh-CN", "zho_Hans"])
RATES = st.floats(0, 100, exclude_min=True)
STEPS = st.integers(1, 10**9)


@st.composite
def trees(draw: st.DrawFn) -> dict[str, Any]:
    """A config with some of its settings."""
    files = {"source": draw(TEXTS | st.lists(TEXTS, min_size=1)), "target": draw(TEXTS)}
    data = {"train": files, "source_lang": draw(CODES), "root": draw(TEXTS), "max_ratio": draw(st.floats(1, 1e300))}
    train = {"lr": draw(RATES), "max_steps": draw(st.none() | STEPS), "init_from": draw(TEXTS)}
    return {"run": draw(TEXTS), "seed": draw(STEPS), "data": data, "train": train}


# Each example writes a file.
@hypothesis_settings(max_examples=50)
@given(trees())
def test_a_dumped_config_loads_as_the_same_config(folder: Path, tree: dict[str, Any]) -> None:
    config = check_config(tree, {}, "test")
    result = load(folder, dump_config(config))
    assert result == config
