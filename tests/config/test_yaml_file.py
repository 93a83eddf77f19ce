"""Config files: strict YAML 1.2, error messages that list all faults with their lines, dumping and loading."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from configs import MINIMAL, fault, load
from nmt.config import check_config, dump_config, load_config
from nmt.config.yaml_file import MAX_CONFIG_BYTES
from nmt.errors import ConfigError

NUMBERS = {"3e-4": 3e-4, "1E-3": 1e-3, "5.e-1": 0.5, ".5": 0.5, "2": 2.0, "+0.25": 0.25}
WORDS = ["no", "yes", "on", "2024-01-01", "12:30:45", "1_000", "0o17", "=", "<<"]  # not in YAML 1.1


@pytest.mark.parametrize("text", NUMBERS)
def test_numbers_are_those_of_yaml_1_2(folder: Path, text: str) -> None:
    assert load(folder, f"{MINIMAL}train: {{lr: {text}}}").train.lr == NUMBERS[text]


@pytest.mark.parametrize(("text", "value"), [("true", True), ("TRUE", True), ("false", False), ("False", False)])
def test_booleans_are_those_of_yaml_1_2(folder: Path, text: str, value: bool) -> None:
    assert load(folder, MINIMAL, f"data.drop_blank={text}").data.drop_blank is value


@pytest.mark.parametrize("text", ["null", "Null", "~", ""])
def test_null_is_that_of_yaml_1_2(folder: Path, text: str) -> None:
    config = load(folder, f"{MINIMAL}train: {{max_steps: 5}}", f"train.max_steps={text}")
    assert config.train.max_steps is None


@pytest.mark.parametrize("word", WORDS)
def test_other_words_are_text(folder: Path, word: str) -> None:
    assert load(folder, MINIMAL.replace("run: r", f"run: {word}")).run == word


def test_a_byte_order_mark_and_dos_line_ends_are_accepted(folder: Path) -> None:
    assert load(folder, b"\xef\xbb\xbf" + MINIMAL.replace("\n", "\r\n").encode()).run == "r"


@pytest.mark.parametrize("text", ["- a\n- b\n", "null", "5", "word", "!!set {a, b}"])
def test_a_config_that_is_not_a_mapping_is_refused(folder: Path, text: str) -> None:
    assert fault(folder, text) == "demo.yaml: a config must be a mapping of keys to values"


def test_an_empty_config_lacks_what_is_required(folder: Path) -> None:
    assert fault(folder, "# nothing yet\n") == "demo.yaml: 'run' is missing\ndemo.yaml: 'data' is missing"


MALFORMED: list[tuple[str | bytes, str, str]] = [
    # text, place, problem
    ("run: r\ndata: [1, 2\n", "demo.yaml:3", "expected ',' or ']'"),
    ("run: r\n\tdata: 1\n", "demo.yaml:2", "found character '\\t'"),
    ("run: r\n  data: 1\n", "demo.yaml:2", "mapping values are not allowed here"),
    ("run: &a r\nseed: *a\n", "demo.yaml:2", "a config has no aliases"),
    ("run: r\n---\nrun: s\n", "demo.yaml:2", "but found another document"),
    ("? [a, b]\n: c\n", "demo.yaml:1", "found unhashable key"),
    ("run: !!python/object:os.system x\n", "demo.yaml:1", "could not determine a constructor"),
    ("run: r\0\n", "demo.yaml", "unacceptable character #x0000"),
    (b"run: \xff\n", "demo.yaml", "can't decode byte 0xff"),
    ("run: !!float x\n", "demo.yaml", "could not convert string to float: 'x'"),
    ("seed: " + "9" * 5000, "demo.yaml", "Exceeds the limit"),
    ("run: !!bool maybe\n", "demo.yaml", ""),
    ("run: !!timestamp soon\n", "demo.yaml", ""),
    ("[" * 1500, "demo.yaml", "recursion"),
]


@pytest.mark.parametrize(("text", "place", "problem"), MALFORMED)
def test_malformed_yaml_is_refused_with_its_line(folder: Path, text: str | bytes, place: str, problem: str) -> None:
    message = fault(folder, text)
    assert message.startswith(f"{place}: not valid YAML: ")
    assert problem in message
    assert "\n" not in message


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*absent\.yaml: No such file or directory") as caught:
        load_config(tmp_path / "absent.yaml")
    assert (caught.value.exit_code, caught.value.hint) == (2, "give the path of a config file")
    with pytest.raises(ConfigError, match="Is a directory"):
        load_config(tmp_path)


def test_a_file_with_too_many_bytes_is_refused(folder: Path) -> None:
    comment = "#" * (MAX_CONFIG_BYTES - len(MINIMAL))
    assert load(folder, MINIMAL + comment).run == "r"
    message = fault(folder, MINIMAL + comment + "#")
    assert message == "demo.yaml has over 100,000 bytes, too many for a config"


def with_unknown_keys(n: int) -> str:
    return MINIMAL + "".join(f"k{i}: 1\n" for i in range(n))


@pytest.mark.parametrize(("n", "n_left"), [(500, "480"), (5000, "4,980")])
def test_of_many_faults_only_some_are_listed(folder: Path, n: int, n_left: str) -> None:
    lines = fault(folder, with_unknown_keys(n)).splitlines()
    assert len(lines) == 21
    assert lines[0].endswith(": unknown key 'k0'")
    assert lines[-1] == f"demo.yaml: and {n_left} more"


def test_a_long_key_is_cut(folder: Path) -> None:
    assert len(fault(folder, f"{MINIMAL}{'k' * 1000}: 1\n")) < 200


def test_all_faults_are_reported_at_once_with_their_lines(folder: Path) -> None:
    text = "run: r\nseed: -1\ndata:\n  train:\n    source: a\ntrain:\n  lr: x\n  warmupp: 3\nxyzzy: {}\n"
    assert sorted(fault(folder, text, "decode.beam=0").splitlines()) == [
        "command line: 'decode.beam': input should be greater than or equal to 1, got 0",
        "demo.yaml:2: 'seed': input should be greater than or equal to 0, got -1",
        "demo.yaml:4: 'data.train.target' is missing",
        "demo.yaml:7: 'train.lr': input should be a valid number, unable to parse string as a number, got 'x'",
        "demo.yaml:8: unknown key 'train.warmupp' (did you mean 'train.warmup'?)",
        "demo.yaml:9: unknown key 'xyzzy'",
    ]


WRONG_KEYS = [
    ("train: {warmpu: 3}", "demo.yaml:3: unknown key 'train.warmpu' (did you mean 'train.warmup'?)"),
    ("lr: 3", "demo.yaml:3: unknown key 'lr' (did you mean 'train.lr'?)"),
    ("tokeniser: {}", "demo.yaml:3: unknown key 'tokeniser' (did you mean 'tokenizer'?)"),
    ("xyzzy: 3", "demo.yaml:3: unknown key 'xyzzy'"),
    ("<<: {seed: 3}", "demo.yaml:3: unknown key '<<'"),
    ("1: 2", "demo.yaml:3: '1': keys should be strings, got 1"),
    ("seed: 1\nrun: b\n", "demo.yaml:4: duplicate key 'run'"),
    ("train:\n  lr: 1\n  warmup: 2\n  lr: 3\n", "demo.yaml:6: duplicate key 'train.lr'"),
]


@pytest.mark.parametrize(("text", "message"), WRONG_KEYS)
def test_an_unknown_key_and_a_second_one_are_refused(folder: Path, text: str, message: str) -> None:
    assert fault(folder, MINIMAL + text) == message


def test_the_last_override_of_a_setting_counts(folder: Path) -> None:
    config = load(folder, MINIMAL + "train: {lr: oops, warmup: 7}\n", "train.lr=3e-4", "train.lr=5e-4")
    assert (config.train.lr, config.train.warmup) == (5e-4, 7)


def test_only_the_first_equals_sign_separates(folder: Path) -> None:
    assert load(folder, MINIMAL, "run=runs/a=b").run == "runs/a=b"


def test_an_override_makes_a_section(folder: Path) -> None:
    config = load(folder, MINIMAL, "data.test.source=[t1.de, t2.de]", "data.test.target=[t.en]")
    (test,) = config.data.test
    assert test.source == ("t1.de", "t2.de")
    assert load(folder, MINIMAL + "decode: 5\n", "decode.beam=2").decode.beam == 2


def test_an_override_replaces_a_section(folder: Path) -> None:
    config = load(folder, MINIMAL + "decode: {alpha: 2}\n", "decode={beam: 3}")
    assert (config.decode.beam, config.decode.alpha) == (3, 1.0)


@pytest.mark.parametrize("override", ["train.lr", "=3", "", "3e-4"])
def test_an_argument_without_key_and_value_is_refused(folder: Path, override: str) -> None:
    with pytest.raises(ConfigError, match=f"^'{override}' is not a setting$") as caught:
        load(folder, MINIMAL, override)
    assert "key=value" in caught.value.hint


@pytest.mark.parametrize("value", ["[1, 2", "*x", "\x00", "!!float x", "9" * 5000, "[" * 1500])
def test_an_override_that_is_not_yaml_is_refused(folder: Path, value: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(folder, MINIMAL, f"run={value}")
    assert str(caught.value) == f"'run={value}': the value is not valid YAML"
    assert caught.value.hint == "quote it"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("train.lrr=1", "command line: unknown key 'train.lrr' (did you mean 'train.lr'?)"),
        ("model.n_heads=5", "command line: d_model (256) is not divisible by n_heads (5)"),
    ],
)
def test_faults_of_overrides_name_the_command_line(folder: Path, override: str, message: str) -> None:
    assert fault(folder, MINIMAL, override) == message


# Any text, numbers, and words that a YAML parser may take for something else.
TEXTS = (
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=12)
    | st.from_regex(r"[-+]?[0-9.]{1,4}([eE][-+]?[0-9]{1,2})?", fullmatch=True)
    | st.sampled_from(["no", "yes", "on", "~", "null", "true", "0x1", "0o7", "1:30", "=", "<<", "-", "{a: b}", "ü"])
)
CODES = st.sampled_from(["", "no", "yes", "on", "null", "true", "zh-CN", "zho_Hans"])
FILES = st.fixed_dictionaries({"source": TEXTS | st.lists(TEXTS, min_size=1, max_size=3), "target": TEXTS})
DATA = {"source_lang": CODES, "root": TEXTS, "max_ratio": st.floats(1, 1e300), "test": st.none()}
TRAIN = {"lr": st.floats(0, 100, exclude_min=True), "max_steps": st.none() | st.integers(1, 10**9), "init_from": TEXTS}
TREES = st.fixed_dictionaries(
    {"run": TEXTS, "data": st.fixed_dictionaries({"train": FILES}, optional=DATA)},
    optional={"seed": st.integers(0, 2**31 - 1), "train": st.fixed_dictionaries({}, optional=TRAIN)},
)


@hypothesis_settings(max_examples=50)
@given(TREES)
@example({"run": "1e5", "data": {"train": {"source": "08", "target": "b"}}})  # strings in YAML 1.1, numbers in 1.2
def test_a_dumped_config_loads_as_the_same_config(folder: Path, tree: dict[str, Any]) -> None:
    config = check_config(tree, {}, "test")
    assert load(folder, dump_config(config)) == config
