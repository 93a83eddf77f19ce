"""Config files: strict YAML 1.2, error messages that list all faults with their lines, dumping and loading."""

import re
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


def test_numbers_words_and_null_are_those_of_yaml_1_2(folder: Path) -> None:
    for text, number in {"3e-4": 3e-4, "1E-3": 1e-3, "5.e-1": 0.5, ".5": 0.5, "2": 2.0, "+0.25": 0.25}.items():
        assert load(folder, f"{MINIMAL}train: {{lr: {text}}}").train.lr == number
    for text, value in {"true": True, "TRUE": True, "false": False, "False": False}.items():
        assert load(folder, MINIMAL, f"data.drop_blank={text}").data.drop_blank is value
    for text in ("null", "Null", "~", ""):
        assert load(folder, f"{MINIMAL}train: {{max_steps: 5}}", f"train.max_steps={text}").train.max_steps is None
    words = ["no", "yes", "on", "2024-01-01", "12:30:45", "1_000", "0o17", "=", "<<"]  # not in YAML 1.1
    assert [load(folder, MINIMAL.replace("run: r", f"run: {word}")).run for word in words] == words


def test_a_byte_order_mark_and_dos_line_ends_are_accepted(folder: Path) -> None:
    assert load(folder, b"\xef\xbb\xbf" + MINIMAL.replace("\n", "\r\n").encode()).run == "r"


@pytest.mark.parametrize("text", ["- a\n- b\n", "null", "5", "word", "!!set {a, b}"])
def test_a_config_that_is_not_a_mapping_is_refused(folder: Path, text: str) -> None:
    assert fault(folder, text) == "demo.yaml: a config must be a mapping of keys to values"
    assert fault(folder, "# nothing yet\n") == "demo.yaml: 'run' is missing\ndemo.yaml: 'data' is missing"


@pytest.mark.parametrize(
    ("text", "place", "problem"),
    [
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
    ],
)
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
    assert load(folder, MINIMAL + "#" * (MAX_CONFIG_BYTES - len(MINIMAL))).run == "r"
    message = fault(folder, MINIMAL + "#" * (MAX_CONFIG_BYTES - len(MINIMAL) + 1))
    assert message == "demo.yaml has over 100,000 bytes, too many for a config"


def test_of_many_faults_only_some_are_listed(folder: Path) -> None:
    def keys(n: int) -> str:
        return MINIMAL + "".join(f"k{i}: 1\n" for i in range(n))

    lines = fault(folder, keys(500)).split("\n")
    assert len(lines) == 21
    assert re.fullmatch(r"demo.yaml:\d+: unknown key 'k0'", lines[0])
    assert lines[-1] == "demo.yaml: and 480 more"
    assert fault(folder, keys(5000)).endswith("demo.yaml: and 4,980 more")
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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("train: {warmpu: 3}", "demo.yaml:3: unknown key 'train.warmpu' (did you mean 'train.warmup'?)"),
        ("lr: 3", "demo.yaml:3: unknown key 'lr' (did you mean 'train.lr'?)"),
        ("tokeniser: {}", "demo.yaml:3: unknown key 'tokeniser' (did you mean 'tokenizer'?)"),
        ("xyzzy: 3", "demo.yaml:3: unknown key 'xyzzy'"),
        ("<<: {seed: 3}", "demo.yaml:3: unknown key '<<'"),
        ("1: 2", "demo.yaml:3: '1': keys should be strings, got 1"),
        ("seed: 1\nrun: b\n", "demo.yaml:4: duplicate key 'run'"),
        ("train:\n  lr: 1\n  warmup: 2\n  lr: 3\n", "demo.yaml:6: duplicate key 'train.lr'"),
    ],
)
def test_an_unknown_key_and_a_second_one_are_refused(folder: Path, text: str, message: str) -> None:
    assert fault(folder, MINIMAL + text) == message


def test_an_override_replaces_a_setting_or_a_section_of_the_file(folder: Path) -> None:
    text = MINIMAL + "train: {lr: oops, warmup: 7}\ndecode: {alpha: 2}\n"
    test_files = ["data.test.source=[t1.de, t2.de]", "data.test.target=[t.en]"]
    config = load(folder, text, *test_files, "train.lr=3e-4", "run=runs/a=b", "train.lr=5e-4", "decode={beam: 3}")
    assert (config.train.lr, config.train.warmup, config.run) == (5e-4, 7, "runs/a=b")
    assert (config.decode.beam, config.decode.alpha) == (3, 1.0)
    (test,) = config.data.test
    assert test.source == ("t1.de", "t2.de")
    assert load(folder, MINIMAL + "decode: 5\n", "decode.beam=2").decode.beam == 2


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


def test_faults_of_overrides_name_the_command_line(folder: Path) -> None:
    message = "command line: unknown key 'train.lrr' (did you mean 'train.lr'?)"
    assert fault(folder, MINIMAL, "train.lrr=1") == message
    message = "command line: d_model (256) is not divisible by n_heads (5)"
    assert fault(folder, MINIMAL, "model.n_heads=5") == message


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
