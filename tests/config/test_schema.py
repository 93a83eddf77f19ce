"""Ranges and choices of settings, and settings that contradict each other."""

from pathlib import Path

import pytest

from configs import MINIMAL, fault, load
from nmt.errors import ModelError
from nmt.run.directory import RunDirectory


@pytest.mark.parametrize(
    ("path", "words"),
    [(r'"a\0b"', "without NUL"), (r'"\ud800"', "lone surrogates"), ("é" * 150, "shorter"), ("x/" * 2500, "shorter")],
)
def test_a_path_that_no_file_system_accepts_is_refused(folder: Path, path: str, words: str) -> None:
    for text, key in ((f"data: {{root: {path}}}", "data.root"), (f"train: {{init_from: {path}}}", "train.init_from")):
        assert f"'{key}': input should be" in fault(folder, text)
        assert words in fault(folder, text)
    assert "'run': input should be" in fault(folder, f"run: {path}")
    assert "'data.train.source'" in fault(folder, f"data: {{train: {{source: {path}, target: b}}}}")


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("train.label_smoothing=1", "should be less than 1, got 1"),
        (
            r'tokenizer.symbols="\ud800"',
            "should be a valid string, unable to parse raw data as a unicode string, got '\\ud800'",
        ),
        ("train.lr=0", "should be greater than 0, got 0"),
        *((f"{key}=true", "should be a number, got True") for key in ("train.lr", "train.max_steps", "seed")),
        ("train.lr=1e400", "should be a finite number, got inf"),
        ("tokenizer.character_coverage=0.97", "should be greater than or equal to 0.98, got 0.97"),
        ("tokenizer.vocab_size=7", "should be greater than or equal to 8, got 7"),
        ("tokenizer.type=wordpiece", "should be 'unigram', 'bpe', 'char' or 'word', got 'wordpiece'"),
        ("model.d_model=64.5", "should be a valid integer, got a number with a fractional part, got 64.5"),
        ("model=5", "'model': input should be a valid dictionary or instance of ModelSettings, got 5"),
        ("run=", "'run': input should be a valid string, got None"),
        ("data.train.source=[]", "should have at least 1 item after validation, not 0, got []"),
        (f"model.activation={'x' * 200}", f"got '{'x' * 79}"),
    ],
)
def test_a_value_out_of_range_is_refused_with_the_range(folder: Path, override: str, words: str) -> None:
    message = fault(folder, MINIMAL, override)
    assert message.startswith("command line: '" + override.partition("=")[0])
    assert message.endswith(words)


def test_a_language_is_a_bcp_47_tag_with_dashes_or_underscores(folder: Path) -> None:
    for code in ("de", "ENG", "zh-CN", "zho_Hans", "de-DE-1996", "es-419", "x-elvish"):
        assert load(folder, MINIMAL, f"data.target_lang={code}").data.target_lang == code
    for code in ("../x", "d", "plain English", "de.x", "de-", "12", "日本", "de\n"):
        message = fault(folder, MINIMAL, f'data.source_lang="{code}"'.replace("\n", "\\n"))
        expected = "input should be a language code such as de, zh-CN or zho_Hans"
        assert message == f"command line: 'data.source_lang': {expected}, got {code!r}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model: {d_model: 65, n_heads: 4}", "d_model (65) is not divisible by n_heads (4)"),
        ("model: {d_model: 63, n_heads: 3}", "architecture rnn and sinusoidal positions need an even d_model, got 63"),
        ("model: {d_model: 60, positions: rotary}", "rotary positions need an even d_model / n_heads, got 15"),
        *(
            (f"model: {{architecture: {kind}, {key}: {value}}}", f"{kind} supports {key} {allowed}, not {value}")
            for kind, key, value, allowed in [
                ("transformer", "attention", "none", "scaled_dot or dot or additive"),
                ("transformer", "cell", "gru", "lstm"),
                ("rnn", "norm", "post", "pre"),
                ("rnn", "padding_mask", "false", "true"),
                ("rnn", "attention_window", "8", "null"),
            ]
        ),
        ("model: {architecture: rnn, n_encoder_layers: 2}", "n_decoder_layers = n_encoder_layers, got 3 and 2"),
        ("tokenizer: {joint: false}", "model.tied_embeddings=all needs tokenizer.joint=true; use decoder or none"),
        ("model: {max_positions: 200}", "data.max_length (200) must be less than model.max_positions (200)"),
        ("train: {batch_tokens: 200}", "train.batch_tokens (200) cannot hold a pair of data.max_length (200) pieces"),
    ],
)
def test_contradictory_settings_are_refused(folder: Path, text: str, message: str) -> None:
    assert fault(folder, MINIMAL + text).endswith(message)


def test_settings_at_the_limits_of_agreement_are_accepted(folder: Path) -> None:
    learned = load(folder, MINIMAL, "model={d_model: 63, n_heads: 3, positions: learned}")
    assert learned.model.d_model == 63
    assert load(folder, MINIMAL, "model.max_positions=201").model.max_positions == 201
    assert load(folder, MINIMAL, "model={architecture: rnn, d_model: 62}").model.n_heads == 4  # n_heads has no effect
    assert load(folder, MINIMAL, "train.batch_tokens=201").train.batch_tokens == 201, "(L + 1)·n <= batch_tokens"
    apart = load(folder, MINIMAL, "tokenizer.joint=false", "model.tied_embeddings=decoder")
    assert not apart.tokenizer.joint


def test_a_run_with_a_setting_that_is_gone_is_read_if_its_value_has_no_effect(folder: Path) -> None:
    run = RunDirectory(folder)
    run.config_file.write_text(MINIMAL + "decode: {length_penalty: average}\n")
    assert run.read_config() == load(folder, MINIMAL)
    run.config_file.write_text(MINIMAL + "decode: {length_penalty: gnmt}\n")
    with pytest.raises(ModelError, match=r"config\.yaml: decode\.length_penalty=gnmt is not supported any more$"):
        run.read_config()
