"""The CTranslate2 engine: the same translations and scores as the torch engine, without torch."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import SOURCE, TARGET, FiveRun, environment, one_clear_error, run_nmt

from nmt.decode.translator import Translator, load
from nmt.errors import ConfigError, InputError, ModelError
from nmt.interchange.ctranslate2 import to_ctranslate2

pytest.importorskip("ctranslate2")

# Nats per piece. Label smoothing gives PAD, UNK and BOS some probability; the export bans them before the softmax.
TOLERANCE = 5e-3


@pytest.fixture(scope="module")
def exported(five_run: FiveRun, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("export") / "five"
    to_ctranslate2(load(five_run.run), path)
    return path


@pytest.fixture(scope="module")
def engine(exported: Path) -> Translator:
    return load(exported)


@pytest.mark.parametrize("beam", [1, 5])
def test_texts_and_scores_are_those_of_torch(five_run: FiveRun, engine: Translator, beam: int) -> None:
    lines = [*SOURCE, "", "书 " * 3, "我 昨天 " * 200]
    ours = load(five_run.run)
    options = ours.with_options(beam=beam)
    for found, expected in zip(
        engine.translate_lines(lines, options), ours.translate_lines(lines, options), strict=True
    ):
        if found.source in SOURCE:  # for other lines the engines stop by different rules
            assert found.text == TARGET[SOURCE.index(found.source)]
            best, other = found.hypotheses[0], expected.hypotheses[0]
            assert best.pieces == other.pieces
            assert best.log_probs == pytest.approx(other.log_probs, abs=TOLERANCE)
            assert best.score == pytest.approx(other.score, abs=TOLERANCE)
        assert (found.text == "") == (found.source == "")


def test_length_limits_prefix_and_n_best_apply(engine: Translator) -> None:
    one = next(engine.translate_lines([SOURCE[0]], engine.with_options(max_length_a=0.0, max_length_b=3)))
    assert len(one.hypotheses[0].pieces) == 3
    assert one.hypotheses[0].pieces[-1] == "</s>"
    long = next(engine.translate_lines([SOURCE[0]], engine.with_options(min_length=12)))
    assert len(long.hypotheses[0].pieces) > 12
    forced = next(engine.translate_lines([SOURCE[0]], prefix="She"))
    assert forced.text.startswith("She")
    several = next(engine.translate_lines([SOURCE[0]], engine.with_options(beam=4, n_best=3)))
    scores = [hypothesis.score for hypothesis in several.hypotheses]
    assert len(scores) == 3
    assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize("max_length", [1, 2, 4])
@pytest.mark.parametrize("min_length", [0, 3, 25])
def test_maximum_length_overrides_minimum_length_as_in_torch(
    five_run: FiveRun, engine: Translator, max_length: int, min_length: int
) -> None:
    lengths = []
    for translator in (load(five_run.run), engine):
        options = translator.with_options(
            max_length_a=0.0, max_length_b=max_length, min_length=min_length, beam=2, n_best=2
        )
        found = list(translator.translate_lines([SOURCE[0], "书"], options))
        assert all(hypothesis.pieces[-1] == "</s>" for one in found for hypothesis in one.hypotheses)
        lengths.append([len(one.hypotheses[0].pieces) for one in found])
    assert lengths[0] == lengths[1]
    assert max(lengths[0]) <= max_length
    if max_length == 1:
        assert [(h.text, h.pieces) for h in found[0].hypotheses] == [("", ["</s>"])]


def test_too_long_prefix_is_refused_before_a_line_is_read(five_run: FiveRun, engine: Translator) -> None:
    def lines() -> Iterator[str]:
        raise AssertionError("a line was read")
        yield ""

    for translator in (load(five_run.run), engine):
        most = translator.engine.max_length
        assert len(translator.tokenizers.target.encode("book book")) == 2
        with pytest.raises(ConfigError, match=f"the prefix has {most} pieces, the model takes at most {most - 1}"):
            next(translator.translate_lines(lines(), prefix=" ".join(["book"] * most)))
    fits = " ".join(["book"] * (most - 1))
    found = next(engine.translate_lines([SOURCE[0]], engine.with_options(beam=1), prefix=fits))
    assert found.text == fits


def test_reference_log_probs_are_those_of_torch(five_run: FiveRun, engine: Translator) -> None:
    ours = load(five_run.run).reference_log_probs(SOURCE, TARGET)
    for found, expected in zip(engine.reference_log_probs(SOURCE, TARGET), ours, strict=True):
        assert found == pytest.approx(expected, abs=TOLERANCE)


def test_unsupported_options_and_models_are_refused_by_name(
    exported: Path, engine: Translator, five_run: FiveRun
) -> None:
    for options, words in (({"sample": True}, "sampling"), ({"length_penalty": "gnmt"}, "gnmt")):
        with pytest.raises(ConfigError, match=words):
            engine.translate(SOURCE, **options)
    with pytest.raises(ModelError, match="is a CTranslate2 export"):
        load(exported, engine="torch")
    with pytest.raises(ModelError, match="is not a CTranslate2 export"):
        load(five_run.run, engine="ctranslate2")
    with pytest.raises(ModelError, match="cannot load"):
        load(exported, device="nosuch")
    with pytest.raises(InputError, match="is already an export"):
        to_ctranslate2(engine, exported.with_name("again"))


def test_damaged_export_is_one_clear_error(exported: Path, tmp_path: Path) -> None:
    for name in ("config.yaml", "config.json", "shared_vocabulary.json"):
        (tmp_path / name).write_bytes((exported / name).read_bytes())
    (tmp_path / "model.bin").write_bytes((exported / "model.bin").read_bytes()[:1000])
    one_clear_error(run_nmt("translate", "-m", tmp_path, "x"), 2, "has no tokenizer")
    (tmp_path / "tokenizer.model").write_bytes((exported / "tokenizer.model").read_bytes())
    one_clear_error(run_nmt("translate", "-m", tmp_path, "x"), 2, f"the export {tmp_path} is damaged")


def test_new_export_is_loaded_in_a_child_process_once(
    exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    children, run = [], subprocess.run

    def counted(command: Any, **options: Any) -> Any:
        children.append(command[3])  # python -m nmt.sandbox LIBRARY
        return run(command, **options)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(subprocess, "run", counted)
    for _ in range(2):
        load(exported)
    assert children == ["sentencepiece", "ctranslate2"]


def test_command_translates_without_importing_torch(exported: Path) -> None:
    args = ["translate", "-m", str(exported), "--engine", "ctranslate2", "--json"]
    run = f"from nmt.cli.app import app; app({args}, standalone_mode=False)"
    program = f"{run}; import sys; assert 'torch' not in sys.modules"
    lines = "".join(f"{line}\n" for line in SOURCE)
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=lines,
        capture_output=True,
        text=True,
        env=environment(),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["hypotheses"][0]["text"] for line in done.stdout.splitlines()] == TARGET
