"""Export to a page that translates offline: its binary, read by a plain reader, and the page with a stub of the engine.

measure_bergamot.py tries exports with the engine itself, which npm installs.
"""

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from conftest import SCREENS, SOURCE, TARGET, check_accessible, model_of, one_clear_error, opened_page, rows_of, run_nmt
from models import MARIAN, NOT_MARIAN, random_translator, write_run
from numpy.typing import NDArray
from static_site import ENGINE, serving
from torch.nn.modules import module

import nmt
from nmt.errors import InputError
from nmt.interchange import marian
from nmt.interchange.bergamot import to_browser
from nmt.model.transformer import Transformer
from nmt.text.batches import pad_source
from nmt.translate.translator import Translator

SIZES: dict[str, Any] = {"d_model": 64, "d_ff": 128, "n_encoder_layers": 1, "n_decoder_layers": 1}
# What is tied, the number of tokenizers, and the matrix of the projection.
SHAPES = rows_of("""
all     1 Wemb
decoder 2 decoder_Wemb
none    2 decoder_ff_logit_out_W
""")
OTHERS: dict[str, Any] = {**NOT_MARIAN, "d_model": 32, "d_ff": 48}
INT8, FLOAT32, INTGEMM8 = 0x101, 0x404, 0x4101
# A worker that answers as the engine's, and translates to capitals.
STUB = """
self.addEventListener("message", ({ data: { id, name, args } }) => {
  if (name === "loadTranslationModel") self.files = args[1];
  const { vocabs, config } = self.files ?? {};
  const add = config && `${vocabs.length}${config["beam-size"]}${config["skip-cost"]}`;
  const translated = name === "translate" && args[0].texts.map(({ text }) => text.toUpperCase() + add);
  self.postMessage({ id, result: translated && translated.map((text) => ({ target: { text } })) });
});
"""


class Item(NamedTuple):
    """An array of model.bin."""

    kind: int
    shape: tuple[int, ...]
    content: bytes

    @property
    def multiplier(self) -> float:
        """Of a quantized array: what its values were multiplied by."""
        (value,) = struct.unpack("<f", self.content[-4:])
        return float(value)

    def values(self, *shape: int) -> NDArray[Any]:
        """Of a quantized array: the values before quantization."""
        integers = np.frombuffer(self.content[:-4], np.int8)
        return integers.reshape(shape) / self.multiplier


def read(path: Path) -> dict[str, Item]:
    """The arrays of model.bin by name."""
    content = path.read_bytes()
    position = 0

    def numbers(n: int, letter: str) -> tuple[int, ...]:
        nonlocal position
        layout = f"<{n}{letter}"
        values = struct.unpack_from(layout, content, position)
        position += struct.calcsize(layout)
        return values

    version, n_items = numbers(2, "Q")
    assert version == 1
    headers = [numbers(4, "Q") for _ in range(n_items)]
    names = []
    for length, *_ in headers:
        names.append(content[position : position + length - 1].decode())
        assert content[position + length - 1] == 0
        position += length
    shapes = [numbers(n_dimensions, "i") for _, _, n_dimensions, _ in headers]
    (padding,) = numbers(1, "Q")
    position += padding
    items = {}
    for name, shape, (_, kind, _, n_bytes) in zip(names, shapes, headers, strict=True):
        items[name] = Item(kind, shape, content[position : position + n_bytes])
        position += n_bytes
    assert position == len(content)
    return items


def run_of(directory: Path, joint: bool = True, **choices: Any) -> Path:
    """A run with random weights whose training text is the five pairs."""
    translator = random_translator(joint, **MARIAN | SIZES | choices)
    (directory / "train.zh").write_text("\n".join(SOURCE), encoding="utf-8")
    (directory / "train.en").write_text("\n".join(TARGET), encoding="utf-8")
    tree = translator.config.model_dump()
    tree["data"] |= {"root": str(directory), "train": {"source": "train.zh", "target": "train.en"}}
    tree["data"] |= {"source_lang": "zh", "target_lang": "en"}
    translator.config = type(translator.config).model_validate(tree)
    run = write_run(translator, directory / "run")
    run.write_config(translator.config)
    return run.path


def loaded(directory: Path, joint: bool = True, **choices: Any) -> Translator:
    return nmt.load(run_of(directory, joint, **choices), engine="torch")


def exported(translator: Translator, directory: Path) -> dict[str, Item]:
    """The arrays of an export."""
    to_browser(translator, directory / "out")
    return read(directory / "out" / "model.bin")


def transformer_of(translator: Translator) -> Transformer:
    model = model_of(translator)
    assert isinstance(model, Transformer)
    return model


@pytest.mark.parametrize("row", SHAPES)
def test_matrices_are_within_half_a_step_of_the_weights(row: str, tmp_path: Path) -> None:
    tied, n_tokenizers, projection = row.split()
    translator = loaded(tmp_path, n_tokenizers == "1", tied_embeddings=tied)
    items = exported(translator, tmp_path)
    source, target = ([*range(len(tokenizer))] for tokenizer in translator.tokenizers)
    arrays = marian.arrays(transformer_of(translator), source, target)
    if tied == "none":
        arrays["decoder_ff_logit_out_W"] = arrays.pop("decoder_ff_logit_out_Wt").T
    matrices = {name: x for name, x in arrays.items() if x.ndim == 2 and len(x) > 1}
    assert {name for name, item in items.items() if item.kind == INTGEMM8} == set(matrices)
    assert projection in matrices
    for name, matrix in matrices.items():
        item = items[name]
        # Embeddings have rows for added pieces. Other matrices are stored as their transposes.
        n_rows, n_columns = item.shape
        rows = item.values(n_rows, n_columns) if name.endswith("Wemb") else item.values(n_columns, n_rows).T
        difference = np.abs(rows[: len(matrix)] - matrix)
        assert difference.max() <= 0.51 / item.multiplier, name


def test_other_arrays_are_as_they_were(tmp_path: Path) -> None:
    translator = loaded(tmp_path)
    items = exported(translator, tmp_path)
    norm = transformer_of(translator).get_submodule("encoder.0.feed_forward_residual.norm")
    item = items["encoder_l1_ffn_ffn_ln_scale"]
    assert item.kind == FLOAT32
    assert item.shape == (1, 64)
    weight = norm.get_parameter("weight").detach().numpy()
    assert sorted(np.frombuffer(item.content, np.float32).tolist()) == sorted(weight.tolist())
    assert items["special:model.yml"].kind == INT8


def test_the_number_of_pieces_is_a_multiple_of_8(tmp_path: Path) -> None:
    translator = loaded(tmp_path, False, tied_embeddings="decoder")
    items = exported(translator, tmp_path)
    sizes = [items[f"{side}_Wemb"].shape[0] for side in ("encoder", "decoder")]
    n_pieces = [len(tokenizer) for tokenizer in translator.tokenizers]
    assert sizes == [-(-n // 8) * 8 for n in n_pieces]
    assert sizes != n_pieces
    assert f"dim-vocabs: {sizes}".encode() in items["special:model.yml"].content


def test_added_pieces_are_banned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marian, "marian_tokens", lambda *_: list(range(397)))
    item = exported(loaded(tmp_path), tmp_path)["decoder_ff_logit_out_b"]
    bias = np.frombuffer(item.content, np.float32)
    assert bias[396:].tolist() == [0, -1e4, -1e4, -1e4]


@pytest.mark.parametrize("row", SHAPES)
def test_every_product_has_a_multiplier(row: str, tmp_path: Path) -> None:
    tied, n_tokenizers, projection = row.split()
    items = exported(loaded(tmp_path, n_tokenizers == "1", tied_embeddings=tied), tmp_path)
    products = {projection}
    products |= {name for name, item in items.items() if item.kind == INTGEMM8 and not name.endswith("Wemb")}
    assert {name for name in items if name.endswith("_QuantMultA")} == {f"{name}_QuantMultA" for name in products}


def test_a_multiplier_maps_the_largest_input_to_127(tmp_path: Path) -> None:
    translator = loaded(tmp_path)
    items = exported(translator, tmp_path)
    model = transformer_of(translator)
    largest = 0.0
    for tokens in translator.tokenizers.source.encode_all(SOURCE):
        src = pad_source([tokens])
        with torch.inference_mode():
            x, _ = model.embed(src, model.source_embedding, None, slice(src.size(1)))
        largest = max(largest, x.abs().max().item())
    for letter in "qkv":
        item = items[f"encoder_l1_self_W{letter}_QuantMultA"]
        assert item.multiplier == pytest.approx(127 / largest)


def test_no_hook_is_left_after_the_export(tmp_path: Path) -> None:
    to_browser(loaded(tmp_path), tmp_path / "out")
    assert not module._global_forward_pre_hooks


@pytest.mark.parametrize("setting", OTHERS)
def test_a_setting_that_the_engine_lacks_is_refused_by_name(setting: str, tmp_path: Path) -> None:
    translator = random_translator(**MARIAN | SIZES | {setting: OTHERS[setting]})
    message = rf"^Bergamot's engine does not support model\.{setting}={str(OTHERS[setting]).lower()}$"
    with pytest.raises(InputError, match=message):
        to_browser(translator, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_model_without_training_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is made from the training text of a run"):
        to_browser(random_translator(**MARIAN | SIZES), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_command_replaces_an_export_and_nothing_else(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    out = tmp_path / "out"
    for name in "ab":
        done = run_nmt("export", "-m", run, "--to", "browser", "-o", out)
        assert done.returncode == 0
        (out / "node_modules" / name).mkdir(parents=True)
    assert (out / "node_modules" / "a").exists()
    (out / "mine.txt").write_text("a")
    again = run_nmt("export", "-m", run, "--to", "browser", "-o", out)
    one_clear_error(again, 2, "exists and is not an export")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    to_browser(loaded(tmp_path), tmp_path / "site")
    return tmp_path / "site"


def test_the_engine_is_named_with_its_hash(site: Path) -> None:
    name = "@browsermt/bergamot-translator"
    version = json.loads((site / "package.json").read_text())["dependencies"][name]
    locked = json.loads((site / "package-lock.json").read_text())["packages"][f"node_modules/{name}"]
    assert locked["version"] == version
    assert locked["integrity"].startswith("sha512-")


def test_no_file_has_a_path_of_this_machine(site: Path, tmp_path: Path) -> None:
    for file in site.iterdir():
        assert str(tmp_path).encode() not in file.read_bytes(), file.name


@pytest.fixture
def url(site: Path) -> Iterator[str]:
    """The URL of the page, whose engine is a stub."""
    (site / ENGINE).parent.mkdir(parents=True)
    (site / ENGINE).write_text(STUB)
    with serving(site) as url:
        yield url


@pytest.mark.parametrize("screen", SCREENS, ids=str)
def test_the_page_translates_what_is_typed_without_a_server(browser: Any, url: str, screen: dict[str, Any]) -> None:
    from playwright.sync_api import expect

    with opened_page(browser, url, url, **screen) as page:
        expect(page.locator("#status")).to_contain_text("Ready after")
        page.context.set_offline(True)
        page.fill("#text", "a b\n  \nc")
        expect(page.locator("#result")).to_have_text("A B15false\n  \nC15false", use_inner_text=True)
        expect(page.locator("#status")).to_contain_text("3 words in ")
        assert page.get_attribute("#text", "lang") == "zh"
        assert page.get_attribute("#result", "lang") == "en"
        check_accessible(page)


def test_the_page_says_that_the_engine_is_missing(browser: Any, site: Path) -> None:
    from playwright.sync_api import expect

    with serving(site) as url, opened_page(browser, url, url, ignored="404") as page:
        expect(page.locator("#status")).to_contain_text("Run npm ci")
