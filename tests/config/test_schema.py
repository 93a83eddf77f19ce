"""Ranges and choices of settings, and settings that contradict each other."""

import json
from pathlib import Path

import pytest

from configs import MINIMAL, cases, fault, load
from nmt.errors import ConfigError
from nmt.run.directory import RunDirectory

# By the problem: paths as YAML.
PATHS = {"without NUL": r'"a\0b"', "lone surrogates": r'"\ud800"', "shorter": "é" * 150, "shorter paths": "x/" * 2500}


@pytest.mark.parametrize("problem", PATHS)
def test_a_path_that_no_file_system_accepts_is_refused(folder: Path, problem: str) -> None:
    path = PATHS[problem]
    message = fault(folder, f"data: {{root: {path}}}")
    assert "'data.root': input should be" in message
    assert problem.removesuffix(" paths") in message
    assert "'run': input should be" in fault(folder, f"run: {path}")
    assert "'data.train.source'" in fault(folder, f"data: {{train: {{source: {path}, target: b}}}}")


OUT_OF_RANGE = r"""
train.label_smoothing=1 → should be less than 1, got 1
tokenizer.symbols="\ud800" → unable to parse raw data as a unicode string, got '\ud800'
train.lr=0 → should be greater than 0, got 0
train.lr=1e400 → should be a finite number, got inf
tokenizer.character_coverage=0.97 → should be greater than or equal to 0.98, got 0.97
tokenizer.vocab_size=7 → should be greater than or equal to 8, got 7
tokenizer.type=wordpiece → should be 'unigram', 'bpe', 'char' or 'word', got 'wordpiece'
model.d_model=64.5 → should be a valid integer, got a number with a fractional part, got 64.5
model=5 → 'model': input should be a valid dictionary or instance of ModelSettings, got 5
run= → 'run': input should be a valid string, got None
data.train.source=[] → should have at least 1 item after validation, not 0, got []
"""


@pytest.mark.parametrize(("override", "words"), cases(OUT_OF_RANGE))
def test_a_value_out_of_range_is_refused_with_the_range(folder: Path, override: str, words: str) -> None:
    key, _, _ = override.partition("=")
    message = fault(folder, MINIMAL, override)
    assert message.startswith(f"command line: '{key}")
    assert message.endswith(words)


def test_a_long_value_is_cut_in_the_message(folder: Path) -> None:
    value = "x" * 200
    message = fault(folder, MINIMAL, f"model.activation={value}")
    assert message.endswith(f"got '{value[:79]}")


@pytest.mark.parametrize("code", ["de", "ENG", "zho_Hans", "de-DE-1996", "es-419", "x-elvish"])
def test_a_language_is_a_bcp_47_tag_with_dashes_or_underscores(folder: Path, code: str) -> None:
    config = load(folder, MINIMAL, f"data.target_lang={code}")
    assert config.data.target_lang == code


@pytest.mark.parametrize("code", ["../x", "d", "plain English", "de-", "12", "日本", "de\n"])
def test_what_is_no_language_is_refused(folder: Path, code: str) -> None:
    message = fault(folder, MINIMAL, f"data.source_lang={json.dumps(code)}")
    expected = "input should be a language code such as de, zh-CN or zho_Hans"
    assert message == f"command line: 'data.source_lang': {expected}, got {code!r}"


CONTRADICTIONS = """
model: {d_model: 65, n_heads: 4} → d_model (65) is not divisible by n_heads (4)
model: {d_model: 63, n_heads: 3} → architecture rnn and sinusoids need an even d_model, got 63
model: {d_model: 60, positions: rotary} → rotary positions need an even d_model / n_heads, got 15
model: {attention: none} → transformer supports attention scaled_dot or dot or additive, not none
model: {cell: gru} → transformer supports cell lstm, not gru
model: {architecture: rnn, d_model: 63, positions: learned} → rnn and sinusoids need an even d_model, got 63
model: {architecture: rnn, norm: post} → rnn supports norm pre, not post
model: {architecture: rnn, padding_mask: false} → rnn supports padding_mask true, not false
model: {architecture: rnn, attention_window: 8} → rnn supports attention_window null, not 8
model: {architecture: rnn, n_encoder_layers: 2} → n_decoder_layers = n_encoder_layers, got 3 and 2
tokenizer: {joint: false} → model.tied_embeddings=all needs tokenizer.joint=true; use decoder or none
model: {max_positions: 200} → (200) must be more than 200, the longest pair (data.max_length, or twice it)
train: {batch_tokens: 200} → (200) cannot hold 200, the longest pair (data.max_length, or twice it)
"""


@pytest.mark.parametrize(("text", "message"), cases(CONTRADICTIONS))
def test_contradictory_settings_are_refused(folder: Path, text: str, message: str) -> None:
    assert fault(folder, MINIMAL + text).endswith(message)


def test_two_concatenated_pairs_must_fit_into_the_model(folder: Path) -> None:
    message = fault(folder, MINIMAL, "data.concatenate=0.5", "data.max_length=512")
    end = "model.max_positions (1024) must be more than 1024, the longest pair (data.max_length, or twice it)"
    assert message.endswith(end)


AT_THE_LIMIT = [
    "model={d_model: 63, n_heads: 3, positions: learned}",
    "model.max_positions=201",
    "model={architecture: rnn, d_model: 62, positions: rotary}",  # n_heads and positions have no effect
    "train.batch_tokens=201",  # (L + 1)·n <= batch_tokens
]


@pytest.mark.parametrize("override", AT_THE_LIMIT)
def test_settings_at_the_limits_of_agreement_are_accepted(folder: Path, override: str) -> None:
    assert load(folder, MINIMAL, override)


def test_two_vocabularies_have_two_embeddings(folder: Path) -> None:
    config = load(folder, MINIMAL, "tokenizer.joint=false", "model.tied_embeddings=decoder")
    assert not config.tokenizer.joint


def test_a_run_with_a_setting_that_is_gone_is_read_if_its_value_has_no_effect(folder: Path) -> None:
    run = RunDirectory(folder)
    run.config_file.write_text(MINIMAL + "decode: {length_penalty: average}\n")
    result = run.read_config()
    assert result == load(folder, MINIMAL)
    run.config_file.write_text(MINIMAL + "decode: {length_penalty: gnmt}\n")
    with pytest.raises(ConfigError, match=r"config\.yaml:3: unknown key 'decode\.length_penalty'"):
        run.read_config()


def test_a_setting_that_is_gone_and_never_had_an_effect_on_the_model_is_ignored(folder: Path) -> None:
    result = load(folder, MINIMAL + "train: {snapshots: 12}\n")
    assert result == load(folder, MINIMAL)
