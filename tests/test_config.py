"""Settings: YAML 1.2 read strictly, all faults told at once with their places, nothing lost on the way to disk."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from pydantic import ValidationError

from nmt.config import Config, check_config, dump_config, language, load_config, settings, values
from nmt.config.yaml_file import MAX_CONFIG_BYTES, read_yaml
from nmt.errors import ConfigError

MINIMAL = "run: r\ndata: {train: {source: a.de, target: a.en}}\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for the module: hypothesis does not want a fixture that is made once for many examples."""
    return tmp_path_factory.mktemp("config")


def write(folder: Path, content: str | bytes) -> Path:
    path = folder / "demo.yaml"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def load(folder: Path, content: str | bytes, *overrides: str) -> Config:
    return load_config(write(folder, content), overrides)


def fault(folder: Path, content: str | bytes, *overrides: str) -> str:
    """The message of a config that is refused, its path cut to the file's name."""
    with pytest.raises(ConfigError) as caught:
        load(folder, content, *overrides)
    assert caught.value.exit_code == 2
    return str(caught.value).replace(f"{folder}/", "")


# --- YAML 1.2 ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "number"),
    [("3e-4", 3e-4), ("1E-3", 1e-3), ("5.e-1", 0.5), (".5", 0.5), ("2", 2.0), ("+0.25", 0.25), ("1e+1", 10.0)],
)
def test_numbers_as_people_write_them_are_numbers(folder: Path, text: str, number: float) -> None:
    assert load(folder, f"{MINIMAL}train: {{lr: {text}}}").train.lr == number


@pytest.mark.parametrize(
    "word", ["no", "No", "yes", "on", "off", "y", "n", "2024-01-01", "12:30:45", "1_000", "0o17", "=", "1e", "<<"]
)
def test_what_only_yaml_1_1_takes_for_something_else_stays_a_word(folder: Path, word: str) -> None:
    assert load(folder, f"{MINIMAL}seed: 3\n").seed == 3
    assert load(folder, MINIMAL.replace("run: r", f"run: {word}")).run == word


@pytest.mark.parametrize(("text", "value"), [("true", True), ("TRUE", True), ("false", False), ("False", False)])
def test_true_and_false(folder: Path, text: str, value: bool) -> None:
    assert load(folder, MINIMAL, f"data.drop_blank={text}").data.drop_blank is value


@pytest.mark.parametrize("text", ["null", "Null", "~", ""])
def test_null_takes_a_limit_away(folder: Path, text: str) -> None:
    assert load(folder, f"{MINIMAL}train: {{max_steps: 5}}", f"train.max_steps={text}").train.max_steps is None


def test_a_byte_order_mark_and_dos_line_ends_are_fine(folder: Path) -> None:
    assert load(folder, b"\xef\xbb\xbf" + MINIMAL.replace("\n", "\r\n").encode()).run == "r"


def test_an_empty_file_lacks_what_is_required(folder: Path) -> None:
    assert fault(folder, "# nothing yet\n") == "demo.yaml: 'run' is missing\ndemo.yaml: 'data' is missing"


@pytest.mark.parametrize("text", ["- a\n- b\n", "null", "5", "word", "!!set {a, b}"])
def test_a_config_that_is_no_mapping_is_refused(folder: Path, text: str) -> None:
    assert fault(folder, text) == "demo.yaml: a config must be a mapping of keys to values"


@pytest.mark.parametrize(
    ("text", "place", "problem"),
    [
        ("run: r\ndata: [1, 2\n", "demo.yaml:3", "expected ',' or ']'"),
        ("run: r\n\tdata: 1\n", "demo.yaml:2", "found character '\\t'"),
        ("run: r\n  data: 1\n", "demo.yaml:2", "mapping values are not allowed here"),
        ("run: 'r\n", "demo.yaml:2", "found unexpected end of stream"),
        ("run: *other\n", "demo.yaml:1", "found undefined alias 'other'"),
        ("run: r\n---\nrun: s\n", "demo.yaml:2", "but found another document"),
        ("? [a, b]\n: c\n", "demo.yaml:1", "found unhashable key"),
        ("run: !!python/object:os.system x\n", "demo.yaml:1", "could not determine a constructor"),
        ("run: r\0\n", "demo.yaml", "unacceptable character #x0000"),
        (b"run: \xff\n", "demo.yaml", "can't decode byte 0xff"),
        ("run: !!float x\n", "demo.yaml", "could not convert string to float: 'x'"),
        ("seed: " + "9" * 5000, "demo.yaml", "Exceeds the limit"),
        ("[" * 1500, "demo.yaml", "recursion"),
    ],
)
def test_malformed_yaml_is_refused_with_its_line(folder: Path, text: str | bytes, place: str, problem: str) -> None:
    message = fault(folder, text)
    assert message.startswith(f"{place}: not valid YAML: ")
    assert problem in message
    assert "\n" not in message


@pytest.mark.parametrize("value", ["!!bool maybe", "!!timestamp soon", "!!int 0x1", "!!binary ü", "!!omap 5"])
def test_a_tag_that_its_value_does_not_fit_is_not_valid_yaml(folder: Path, value: str) -> None:
    assert "not valid YAML" in fault(folder, f"run: {value}\n")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*absent\.yaml: No such file or directory") as caught:
        load_config(tmp_path / "absent.yaml")
    assert (caught.value.exit_code, caught.value.hint) == (2, "give the path of a config file")
    with pytest.raises(ConfigError, match="Is a directory"):
        load_config(tmp_path)


def test_a_file_over_the_limit_is_refused_unparsed(folder: Path) -> None:
    assert load(folder, MINIMAL + "#" * (MAX_CONFIG_BYTES - len(MINIMAL))).run == "r"
    message = fault(folder, MINIMAL + "#" * (MAX_CONFIG_BYTES - len(MINIMAL) + 1))
    assert message == "demo.yaml has over 1,000,000 bytes, too many for a config"


def test_a_file_of_too_many_values_is_refused_before_they_take_memory(folder: Path) -> None:
    message = fault(folder, f"run: [{'0,' * 400_000}]")
    assert message == "demo.yaml: not valid YAML: over 20,000 keys and values"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("run: a\nseed: 1\nrun: b\n", "demo.yaml:3: duplicate key 'run'"),
        ("train:\n  lr: 1\n  warmup: 2\n  lr: 3\n", "demo.yaml:4: duplicate key 'train.lr'"),
        ("data: {root: a, root: b}\n", "demo.yaml:1: duplicate key 'data.root'"),
    ],
)
def test_a_key_that_stands_twice_is_refused_with_its_line(folder: Path, text: str, message: str) -> None:
    assert fault(folder, text) == message


@pytest.mark.parametrize("text", ["data: &a {train: *a}", "run: &a [*a]", "data: {train: {source: &a [*a]}}"])
def test_what_holds_itself_is_refused(folder: Path, text: str) -> None:
    assert fault(folder, text).startswith("demo.yaml")


def test_aliases_do_not_multiply(folder: Path) -> None:
    """A file of a few hundred bytes must not become millions of keys."""
    lines = ["a0: &a0 {x: 1}", *(f"a{n}: &a{n} {{p: *a{n - 1}, q: *a{n - 1}}}" for n in range(1, 13))]
    _, origins = read_yaml(write(folder, "\n".join(lines)))
    assert len(origins) < 1000


BOMB = "\n".join(["a0: &a0 [x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30))])


@pytest.mark.parametrize(
    "text",
    [
        f"{BOMB}\nrun: r\ndata: {{train: {{source: a, target: *a29}}}}\nseed: *a29\n",
        f"{BOMB}\n? [*a29]\n: 1\n",
        "a0: &a0 {x: 1}\n" + "\n".join(f"a{n}: &a{n} {{!!merge <<: [{f'*a{n - 1},' * 9}]}}" for n in range(1, 30)),
    ],
)
def test_aliases_of_aliases_are_neither_told_nor_merged_in_full(folder: Path, text: str) -> None:
    assert max(map(len, fault(folder, text).split("\n"))) < 300


def test_of_many_faults_some_are_told(folder: Path) -> None:
    def keys(n: int) -> str:
        return MINIMAL + "".join(f"k{i}: 1\n" for i in range(n))

    lines = fault(folder, keys(500)).split("\n")
    assert len(lines) == 21
    assert re.fullmatch(r"demo.yaml:\d+: unknown key 'k0'", lines[0])
    assert lines[-1] == "demo.yaml: and 480 more"
    assert fault(folder, keys(5000)) == "demo.yaml: 5,000 faults"
    assert len(fault(folder, f"{MINIMAL}{'k' * 1000}: 1\n")) < 200


@pytest.mark.parametrize(
    ("path", "words"),
    [(r'"a\0b"', "without NUL"), (r'"\ud800"', "lone surrogates"), ("é" * 150, "shorter"), ("x/" * 2500, "shorter")],
)
def test_a_path_that_no_file_system_takes_is_a_wrong_setting(folder: Path, path: str, words: str) -> None:
    for text, key in (
        (f"data: {{root: {path}}}", "data.root"),
        (f"train: {{init_from: {path}}}", "train.init_from"),
    ):
        assert f"'{key}': input should be" in fault(folder, text)
        assert words in fault(folder, text)
    assert "'run': input should be" in fault(folder, f"run: {path}")
    assert "'data.train.source.0'" in fault(folder, f"data: {{train: {{source: {path}, target: b}}}}")


FRAGMENTS = [
    *("run: r", "data: ", "{", "}", "[", "]", ":", ": ", " ", "  ", "\n", "- ", "? ", "| ", "> ", ", ", "#", "%"),
    *("'", '"', "\\", "\t", "&a ", "*a", "!!bool ", "!!int ", "!!float ", "!!null ", "!!str ", "!!seq ", "!!map "),
    *("!", "!!set ", "!!omap ", "!!pairs ", "!!timestamp ", "!!binary ", "---\n", "...\n", "%YAML 1.1\n", "<<: "),
    *("train: {source: a, target: b}", "train: {lr: ", "1", "-", "1e5", ".", "~", "no", "true", "=", "\x85", "ü"),
]


@hypothesis_settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(FRAGMENTS), max_size=12).map("".join) | st.text() | st.binary())
def test_any_content_is_a_config_or_a_fault_that_names_the_file(folder: Path, content: str | bytes) -> None:
    if isinstance(content, str):
        content = content.encode(errors="replace")  # a lone surrogate cannot be in a file
    path, message = write(folder, content), ""
    try:
        message = load_config(path).run
    except ConfigError as error:
        message = str(error)
        assert str(path) in message
    assert message


# --- faults -----------------------------------------------------------------------------------------------


def test_all_faults_come_at_once_each_with_its_line(folder: Path) -> None:
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
        ("train: {beam: 3}", "demo.yaml:3: unknown key 'train.beam' (did you mean 'decode.beam'?)"),
        ("lr: 3", "demo.yaml:3: unknown key 'lr' (did you mean 'train.lr'?)"),
        ("sede: 3", "demo.yaml:3: unknown key 'sede' (did you mean 'seed'?)"),
        ("xyzzy: 3", "demo.yaml:3: unknown key 'xyzzy'"),
        ("<<: {seed: 3}", "demo.yaml:3: unknown key '<<'"),
        ("1: 2", "demo.yaml:3: '1': keys should be strings, got 1"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest(folder: Path, text: str, message: str) -> None:
    assert fault(folder, MINIMAL + text) == message


@pytest.mark.parametrize(("section", "nearest"), [("modle", "model"), ("trian", "train"), ("tokeniser", "tokenizer")])
def test_a_misspelt_section_is_told_the_sections_name(folder: Path, section: str, nearest: str) -> None:
    message = fault(folder, f"{MINIMAL}{section}: {{}}\n")
    assert message == f"demo.yaml:3: unknown key '{section}' (did you mean '{nearest}'?)"


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("train.label_smoothing=1", "should be less than 1, got 1"),
        ("train.adam_beta2=1.0", "should be less than 1, got 1.0"),
        ("train.lr=0", "should be greater than 0, got 0"),
        ("train.lr=1e400", "should be a finite number, got inf"),
        ("data.max_ratio=0.5", "should be greater than or equal to 1, got 0.5"),
        ("tokenizer.vocab_size=7", "should be greater than or equal to 8, got 7"),
        ("tokenizer.type=wordpiece", "should be 'unigram', 'bpe', 'char' or 'word', got 'wordpiece'"),
        ("model.norm=no", "should be 'pre' or 'post', got 'no'"),
        ("model.d_model=64.5", "should be a valid integer, got a number with a fractional part, got 64.5"),
        ("model=5", "'model': input should be a valid dictionary or instance of ModelSettings, got 5"),
        ("run=", "'run': input should be a valid string, got None"),
        ("run=''", "'run': string should have at least 1 character, got ''"),
        ("data.train.source=[]", "should have at least 1 item after validation, not 0, got []"),
        ("data.train.source=[a, 5]", "'data.train.source.1': input should be a valid string, got 5"),
        (f"model.activation={'x' * 200}", f"got '{'x' * 79}"),
    ],
)
def test_a_value_out_of_range_is_told_with_what_is_allowed_and_what_came(
    folder: Path, override: str, words: str
) -> None:
    message = fault(folder, MINIMAL, override)
    assert message.startswith("command line: '" + override.partition("=")[0])
    assert message.endswith(words)


@pytest.mark.parametrize("key", ["train.lr", "train.max_steps", "model.n_heads", "seed"])
def test_true_is_not_a_number(folder: Path, key: str) -> None:
    assert key in fault(folder, MINIMAL, f"{key}=true")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model: {d_model: 65, n_heads: 4}", "demo.yaml:3: d_model (65) is not divisible by n_heads (4)"),
        ("model: {d_model: 63, n_heads: 3}", "demo.yaml:3: sinusoidal positions need an even d_model, got 63"),
        (
            "model: {d_model: 60, n_heads: 4, positions: rotary}",
            "demo.yaml:3: rotary positions need an even d_model / n_heads, got 15",
        ),
        (
            "model: {attention_window: 8, attention: additive}",
            "demo.yaml:3: attention_window needs attention scaled_dot, not additive",
        ),
        *(
            (
                f"model: {{architecture: {architecture}, {key}: {value}}}",
                f"demo.yaml:3: architecture {architecture} supports {key} {allowed}, not {value}",
            )
            for architecture, key, value, allowed in [
                ("transformer", "attention", "none", "scaled_dot or dot or additive"),
                ("transformer", "attention", "general", "scaled_dot or dot or additive"),
                ("transformer", "cell", "gru", "lstm"),
                ("rnn", "norm", "post", "pre"),
                ("rnn", "positions", "rotary", "sinusoidal"),
                ("rnn", "attention_window", "8", "0"),
                ("rnn", "padding_mask", "false", "true"),
            ]
        ),
        (
            "model: {architecture: rnn, n_encoder_layers: 2}",
            "demo.yaml:3: architecture rnn needs n_decoder_layers = n_encoder_layers, because each decoder layer "
            "starts from the last state of an encoder layer; got 3 and 2",
        ),
        (
            "model: {architecture: rnn, d_model: 63}",
            "demo.yaml:3: architecture rnn needs an even d_model, half per direction of the encoder, got 63",
        ),
        (
            "tokenizer: {type: char, sampling_alpha: 0.1}",
            "demo.yaml:3: sampling_alpha needs type unigram or bpe: char has only one segmentation",
        ),
        (
            "tokenizer: {joint: false}",
            "demo.yaml: model.tied_embeddings=all needs tokenizer.joint=true; use decoder or none",
        ),
        (
            "model: {max_positions: 200}",
            "demo.yaml: data.max_length (200) must be less than model.max_positions (200)",
        ),
        (
            "train: {batch_tokens: 200}",
            "demo.yaml: train.batch_tokens (200) cannot hold one pair of data.max_length (200) pieces",
        ),
    ],
)
def test_settings_at_odds_with_each_other_are_refused(folder: Path, text: str, message: str) -> None:
    assert fault(folder, MINIMAL + text) == message


def test_settings_that_just_agree_are_taken(folder: Path) -> None:
    learned = load(folder, MINIMAL, "model={d_model: 63, n_heads: 3, positions: learned}")
    assert learned.model.d_model == 63
    assert load(folder, MINIMAL, "model.max_positions=201").model.max_positions == 201
    assert load(folder, MINIMAL, "model={architecture: rnn, d_model: 62}").model.n_heads == 4  # which it has not
    apart = load(folder, MINIMAL, "tokenizer.joint=false", "model.tied_embeddings=decoder")
    assert not apart.tokenizer.joint


def test_a_batch_that_holds_one_longest_pair_is_large_enough(folder: Path) -> None:
    """(max(S, T) + 1)·n <= batch_tokens, as house and help say: 201 hold one pair of 200 pieces."""
    assert load(folder, MINIMAL, "train.batch_tokens=201").train.batch_tokens == 201


# --- overrides --------------------------------------------------------------------------------------------


def test_an_override_lies_over_the_file(folder: Path) -> None:
    config = load(
        folder,
        MINIMAL + "train: {lr: oops, warmup: 7}\n",
        "train.lr=3e-4",
        "run=runs/a=b",
        "data.dev={source: d.de, target: d.en}",
        "data.test.source=[t1.de, t2.de]",
        "data.test.target=[t.en]",
        "train.lr=5e-4",
    )
    assert (config.train.lr, config.train.warmup, config.run) == (5e-4, 7, "runs/a=b")
    assert config.data.dev is not None
    assert config.data.test is not None
    assert (config.data.dev.source, config.data.test.source) == (("d.de",), ("t1.de", "t2.de"))


def test_an_override_can_say_a_whole_section_or_replace_what_is_no_section(folder: Path) -> None:
    assert load(folder, MINIMAL + "decode: 5\n", "decode.beam=2").decode.beam == 2
    assert load(folder, MINIMAL + "decode: {alpha: 2}\n", "decode={beam: 3}").decode.alpha == 1.0


@pytest.mark.parametrize("override", ["train.lr", "=3", "", "3e-4"])
def test_an_argument_that_is_no_setting_is_refused(folder: Path, override: str) -> None:
    with pytest.raises(ConfigError, match=f"^'{override}' is not a setting$") as caught:
        load(folder, MINIMAL, override)
    assert "key=value" in caught.value.hint


@pytest.mark.parametrize("value", ["[1, 2", "'a", "a: b: c", "*x", "\x00", "!!float x", "9" * 5000, "!!bool maybe"])
def test_an_override_that_is_no_yaml_is_refused(folder: Path, value: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(folder, MINIMAL, f"run={value}")
    assert str(caught.value) == f"'run={value}': the value is not valid YAML"
    assert caught.value.hint == "quote it"


def test_a_deeply_nested_override_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match="not valid YAML"):
        load(folder, MINIMAL, "run=" + "[" * 1500)


def test_a_misspelt_override_is_said_to_come_from_the_command_line(folder: Path) -> None:
    message = "command line: unknown key 'train.lrr' (did you mean 'train.lr'?)"
    assert fault(folder, MINIMAL, "train.lrr=1") == message


# --- writing and listing ----------------------------------------------------------------------------------

TEXTS = (
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=12)
    | st.from_regex(r"[-+]?[0-9.]{1,4}([eE][-+]?[0-9]{1,2})?", fullmatch=True)
    | st.sampled_from(["no", "yes", "on", "~", "null", "true", "0x1", "0o7", "1:30", "=", "<<", "-", "{a: b}", "ü"])
)
TREES = st.fixed_dictionaries(
    {
        "run": TEXTS,
        "data": st.fixed_dictionaries(
            {
                "train": st.fixed_dictionaries(
                    {"source": TEXTS | st.lists(TEXTS, min_size=1, max_size=3), "target": TEXTS}
                )
            },
            optional={"source_lang": TEXTS, "root": TEXTS, "max_ratio": st.floats(1, 1e300), "test": st.none()},
        ),
    },
    optional={
        "seed": st.integers(0, 2**31 - 1),
        "train": st.fixed_dictionaries(
            {},
            optional={
                "lr": st.floats(0, 100, exclude_min=True),
                "clip_norm": st.floats(0, 1e308),
                "max_minutes": st.floats(0, 1e300, exclude_min=True),
                "max_steps": st.none() | st.integers(1, 10**9),
                "init_from": TEXTS,
            },
        ),
        "tokenizer": st.fixed_dictionaries({"sampling_alpha": st.floats(0, 10)}),
    },
)


@hypothesis_settings(max_examples=100, deadline=None)
@given(TREES)
@example({"run": "1e5", "data": {"train": {"source": "08", "target": "b"}}})  # words for YAML 1.1, numbers for 1.2
def test_a_config_written_and_read_again_is_the_same(folder: Path, tree: dict[str, Any]) -> None:
    config = check_config(tree, {}, "test")
    assert load(folder, dump_config(config)) == config


def test_a_dumped_config_has_every_key(folder: Path) -> None:
    config = load(folder, MINIMAL, "data.dev={source: d, target: e}", "data.test={source: f, target: g}")
    _, origins = read_yaml(write(folder, dump_config(config)))
    assert {key for key, *_ in settings()} <= {".".join(path) for path in origins}


def leaves(tree: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


def test_the_list_of_settings_has_every_leaf_with_its_type_and_help(folder: Path) -> None:
    config = load(folder, MINIMAL, "data.dev={source: d, target: e}", "data.test={source: f, target: g}")
    rows = list(settings())
    assert [key for key, *_ in rows] == list(leaves(config.model_dump()))
    assert all(allowed and default and meaning for _, allowed, default, meaning in rows)


@pytest.mark.parametrize(
    ("key", "allowed", "default"),
    [
        ("run", "str", "required"),
        ("seed", "int 0..<2147483648", "1"),
        ("data.train.source", "path(s)", "required"),
        ("data.root", "str", "-"),
        ("data.max_ratio", "float 1..", "9.0"),
        ("data.drop_blank", "bool", "true"),
        ("tokenizer.character_coverage", "float >0.9..1", "1.0"),
        ("model.norm", "pre|post", "pre"),
        ("train.lr", "float >0..100", "0.001"),
        ("train.max_steps", "int 1..1000000000", "-"),
        ("train.max_minutes", "float >0..", "-"),
        ("decode.beam", "int 1..1000", "5"),
    ],
)
def test_a_row_of_the_list_says_what_is_allowed(key: str, allowed: str, default: str) -> None:
    assert next((row[1], row[2]) for row in settings() if row[0] == key) == (allowed, default)


def test_the_listed_defaults_are_the_defaults(folder: Path) -> None:
    given_defaults = [f"{key}={default}" for key, _, default, _ in settings() if default not in ("required", "-")]
    assert len(given_defaults) > 30
    assert load(folder, MINIMAL, *given_defaults) == load(folder, MINIMAL)


def test_values_lists_every_setting_with_corpora_where_they_lie(folder: Path) -> None:
    config = load(folder, MINIMAL, "data.root=/corpora", "data.test={source: [a, /b], target: [c, d]}")
    found = dict(values(config))
    assert found["data.train.source"] == "/corpora/a.de"
    assert found["data.test.source"] == "/corpora/a /b"
    assert dict(values(load(folder, MINIMAL)))["data.train.source"] == "a.de"
    assert (found["data.dev"], found["train.max_steps"]) == ("-", "-")
    assert (found["run"], found["data.drop_blank"], found["train.lr"]) == ("r", "true", "0.001")


@pytest.mark.parametrize(
    ("source", "target", "given_lang", "expected"),
    [
        ("train.zh", "train.en", "", ("zh", "en")),
        ("train.cmn.gz", "train.eng.gz", "", ("cmn", "eng")),
        ("x/train.zh", "train.en", "de", ("de", "en")),
        ("train.txt", "train", "", ("", "")),
        ("train.source", "train.e", "", ("", "")),
        ("zh", "train.zh.txt", "", ("", "")),
    ],
)
def test_a_language_is_as_set_or_the_ending_of_the_files_name(
    source: str, target: str, given_lang: str, expected: tuple[str, str]
) -> None:
    files = {"source": [source, "other.xx"], "target": target}
    tree = {"run": "r", "data": {"train": files, "source_lang": given_lang}}
    data = check_config(tree, {}, "test").data
    sides: tuple[Literal["source", "target"], ...] = ("source", "target")
    assert tuple(language(data, side) for side in sides) == expected


def test_a_config_does_not_change(folder: Path) -> None:
    config = load(folder, MINIMAL)
    with pytest.raises(ValidationError, match="frozen"):
        config.seed = 5  # type: ignore[misc]
