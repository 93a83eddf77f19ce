"""Import of damaged and malicious files of Marian: one clear error each, in little memory, and nothing is written."""

import os
import pickle
import random
import resource
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import soak
from marian_models import model_yml, random_arrays, write_marian, write_npz
from reliability.test_untrusted import Bomb

from nmt.errors import ModelError, NmtError
from nmt.interchange.importing import import_model
from nmt.interchange.marian_import import parse_yaml, read_marian, unpacked

MODEL = Path("model")
NPZ = MODEL / "model.npz"
PICKLED = pickle.dumps(Bomb(Path("executed")))
ZEROS = np.zeros((2, 2), np.float32)

# Arrays that replace those of the model; None: removed. A shape stands for an array of zeros.
WRONG_ARRAYS: list[tuple[dict[str, Any], str]] = [
    ({"Wemb": ZEROS}, "model.shared.weight' is (3, 2), by its settings"),
    ({"Wemb": ZEROS[0]}, "has the header"),
    ({"Wemb": np.zeros((2, 2, 2), np.float32)}, "has the header"),
    ({"Wemb": np.zeros((2, 2))}, "has the header"),
    ({"Wemb": np.zeros((2, 2), np.int8)}, "has the header"),
    ({"Wemb": np.zeros((2, 2), ">f4")}, "has the header"),
    ({"Wemb": np.zeros((2, 3), np.float32).T}, "has the header"),
    ({"Wemb": np.zeros((2, 2), np.complex64)}, "has the header"),
    ({"Wemb": np.zeros((2, 2), [("a", "<f4")])}, "has the header"),
    ({"Wemb": np.zeros((0, 2), np.float32)}, "is (1, 2), by its settings"),
    ({"Wemb": None}, "model.shared.weight is missing"),
    ({"encoder_l1_self_Wq": None}, "self_attn.q_proj.weight is missing"),
    ({"encoder_l1_self_Wq": ZEROS}, "is (2, 2), by its settings (32, 32)"),
    ({"encoder_l1_self_Wo_ln_scale": np.zeros((1, 9), np.float32)}, "is (9,), by its settings (32,)"),
    ({"decoder_ff_logit_out_b": None}, ""),
    ({"decoder_ff_logit_out_b": np.zeros((1, 9), np.float32)}, "is (1, 10), by its settings"),
    ({"encoder_l1_self_Wo_ln_scale_pre": ZEROS}, "is (2, 2), by its settings (32,)"),
    ({"encoder_l9_self_Wq": ZEROS}, "by its settings absent"),
    ({"encoder_l0_self_Wq": ZEROS}, "by its settings absent"),
    ({"encoder_l999_x": ZEROS}, "by its settings absent"),
    ({"Wpos": ZEROS}, "by its settings absent"),
    ({"\x1b[31m\nerror": ZEROS}, "by its settings absent"),
    ({"../../evil": ZEROS}, "by its settings absent"),
    ({"x" * 60_000: ZEROS}, "by its settings absent"),
]
# Settings of special:model.yml; None: removed.
WRONG_SETTINGS: list[tuple[dict[str, str | None], str]] = [
    ({"type": "amun"}, "nmt does not support type='amun'"),
    ({"transformer-decoder-autoreg": "rnn"}, "nmt does not support transformer-decoder-autoreg='rnn'"),
    ({"transformer-disable-position-embeddings": "true"}, "nmt does not support transformer-disable"),
    ({"transformer-alibi-shift": "true"}, "nmt does not support transformer-alibi-shift"),
    ({"right-left": "true"}, "nmt does not support right-left"),
    ({"transformer-pool": "true"}, "nmt does not support transformer-pool"),
    ({"transformer-attention-mask": "[x]"}, "nmt does not support transformer-attention-mask=['x']"),
    ({"dim-emb": None}, "d_model: field required"),
    ({"dim-emb": "1e3"}, "d_model: input should be"),
    ({"dim-emb": "-1"}, "d_model': input should be"),
    ({"dim-emb": "9" * 30}, "d_model': input should be"),
    ({"dim-emb": "[1]"}, "d_model: input should be"),
    ({"dim-emb": "64"}, "by its settings"),
    ({"dim-emb": "31"}, "is not divisible by"),
    ({"enc-depth": "100000000"}, "n_encoder_layers': input should be"),
    ({"enc-depth": "2"}, "encoder.layers.1.self_attn.q_proj.weight is missing"),
    ({"dec-depth": "1"}, "by its settings absent"),
    ({"dec-depth": "0"}, "n_decoder_layers': input should be"),
    ({"transformer-heads": None}, "encoder_attention_heads: field required"),
    ({"transformer-heads": "5"}, "is not divisible by"),
    ({"transformer-heads": "0"}, "n_heads': input should be"),
    ({"transformer-dim-ffn": "7"}, "by its settings"),
    ({"transformer-ffn-activation": "tanh"}, "activation_function: input should be"),
    ({"transformer-ffn-activation": "x" * 100_000}, "activation_function: input should be"),
    ({"transformer-preprocess": "n"}, "is missing"),
    ({"tied-embeddings-all": "false"}, "is missing"),
]
WRONG_YAML = {
    "empty": b"",
    "a text": b"abc",
    "a list": b"[a, b]",
    "an alias": b"a: &x [1]\nb: *x",
    "nested": b"a: {b: {c: d}}",
    "deep lists": b"a: " + b"[" * 1_000_000,
    "deep mappings": b"{a: " * 100_000,
    "a list as key": b"[a]: b",
    "a mapping as key": b"? {a: b}\n: c",
    "a tab": b"\ta: b",
    "an open quote": b'a: "',
    "no UTF-8": b"a: \xff\xfe",
    "NUL": b"a: b\0c",
    "a tag": b"!!python/object/apply:os.system [touch executed]",
    "two documents": b"a: b\n---\nc: d",
    "a directive": b"%YAML 9.9\n---\na: b",
}
WRONG_VOCABULARIES = {
    "no </s>": "<unk>: 1\na: 0\n",
    "ids from 1": "</s>: 1\n<unk>: 2\n",
    "an id twice": "</s>: 0\n<unk>: 1\na: 2\nb: 2\n",
    "a hole": "</s>: 0\n<unk>: 1\na: 2\nb: 9\n",
    "a text as id": "</s>: 0\n<unk>: x\n",
    "a list as id": "</s>: 0\n<unk>: [1]\n",
    "a negative id": "</s>: 0\n<unk>: -1\n",
    "a large id": f"</s>: 0\n<unk>: {'9' * 5000}\n",
    "a float": "</s>: 0\n<unk>: 1.0\n",
    "another number of pieces": "</s>: 0\n<unk>: 1\na: 2\nb: 3\nc: 4\nd: 5\ne: 6\nf: 7\ng: 8\n",
    "too few": "</s>: 0\n<unk>: 1\n",
}
WRONG_DECODERS = {
    "another model": "models: [other.npz]\n",
    "no such vocabulary": "vocabs: [a.spm, b.spm]\n",
    "an absolute path": "vocabs: [/etc/passwd, /etc/shadow]\n",
    "a parent": "models: [../..]\n",
    "a text": "models: model\n",
    "NUL": 'models: ["a\\0b"]\n',
    "a long name": f"models: [{'x' * 5000}]\n",
    "beam -1": "beam-size: -1\n",
    "beam x": "beam-size: x\n",
    "beam list": "beam-size: [1]\n",
    "normalize nan": "normalize: .nan\n",
    "normalize inf": "normalize: inf\n",
}


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_marian(tmp_path_factory.mktemp("hostile") / "model")


@pytest.fixture(autouse=True)
def model(original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of the original, in the working directory; tests damage it."""
    monkeypatch.chdir(tmp_path)
    MODEL.mkdir()
    for file in original.iterdir():
        (MODEL / file.name).write_bytes(file.read_bytes())


def arrays_of_model() -> dict[str, Any]:
    arrays = dict(np.load(NPZ))
    del arrays["special:model.yml"]
    return arrays


def refusal() -> NmtError:
    """Return the error of an import: its message is one short line, and nothing was written or executed."""
    before = sorted(Path.cwd().rglob("*"))
    with pytest.raises(NmtError) as caught:
        import_model(read_marian(MODEL), Path("run"))
    check_clear(caught.value)
    assert sorted(Path.cwd().rglob("*")) == before
    return caught.value


def check_clear(error: NmtError) -> None:
    message = str(error)
    assert error.exit_code == 2
    assert error.hint
    assert message.isprintable()
    assert len(message) < 700


@pytest.mark.parametrize(
    ("changes", "message"), WRONG_ARRAYS, ids=lambda value: str(value)[:50].encode("unicode_escape").decode()
)
def test_wrong_arrays_are_refused(changes: dict[str, Any], message: str) -> None:
    arrays = arrays_of_model() | changes
    n = len(arrays_of_model()["Wemb"])
    kept = {name: x for name, x in arrays.items() if x is not None}
    write_npz(NPZ, kept, model_yml(n, n))
    if "decoder_ff_logit_out_b" not in kept:  # nmt does not need it
        import_model(read_marian(MODEL), Path("run"))
        return
    assert message in str(refusal())


@pytest.mark.parametrize(("changes", "message"), WRONG_SETTINGS, ids=lambda value: str(value)[:50])
def test_wrong_settings_are_refused(changes: dict[str, str | None], message: str) -> None:
    arrays = arrays_of_model()
    n = len(arrays["Wemb"])
    lines = []
    for line in model_yml(n, n).splitlines(keepends=True):
        if line.partition(":")[0] not in changes:
            lines.append(line)
    lines += [f"{name}: {value}\n" for name, value in changes.items() if value is not None]
    write_npz(NPZ, arrays, "".join(lines))
    assert message in str(refusal())


@pytest.mark.parametrize("kind", WRONG_YAML)
def test_what_is_no_mapping_of_texts_is_refused(kind: str) -> None:
    with pytest.raises(ValueError, match=r"YAML|it has aliases"):
        parse_yaml(WRONG_YAML[kind])
    (MODEL / "decoder.yml").write_bytes(WRONG_YAML[kind])
    assert "decoder.yml is damaged" in str(refusal())


@pytest.mark.parametrize("kind", WRONG_VOCABULARIES)
def test_a_wrong_vocabulary_is_refused(kind: str) -> None:
    (MODEL / "decoder.yml").unlink()
    (MODEL / "vocab.spm").rename(MODEL / "source.spm")
    (MODEL / "target.spm").write_bytes((MODEL / "source.spm").read_bytes())
    (MODEL / "vocab.yml").write_text(WRONG_VOCABULARIES[kind])
    refusal()


@pytest.mark.parametrize("kind", WRONG_DECODERS)
def test_a_wrong_decoder_yml_is_refused(kind: str) -> None:
    (MODEL / "decoder.yml").write_text(WRONG_DECODERS[kind])
    refusal()


@pytest.mark.parametrize("name", ["model.npz", "vocab.spm", "decoder.yml"])
@pytest.mark.parametrize("kind", ["pickle", "empty", "half", "pipe", "dangling link", "endless", "directory"])
def test_no_file_of_the_format_is_refused(name: str, kind: str) -> None:
    file = MODEL / name
    content = file.read_bytes()
    file.unlink()
    if kind == "pipe":
        os.mkfifo(file)
    elif kind == "directory":
        file.mkdir()
    elif kind in ("dangling link", "endless"):
        file.symlink_to("nowhere" if kind == "dangling link" else "/dev/zero")
    else:
        file.write_bytes({"pickle": PICKLED, "empty": b"", "half": content[: len(content) // 2 - 9]}[kind])
    error = refusal()
    assert name in f"{error} {error.hint}"


def npz_of(write: Callable[[zipfile.ZipFile], None], **options: Any) -> None:
    with zipfile.ZipFile(NPZ, "w", **options) as archive:
        write(archive)


def test_compressed_arrays_are_refused() -> None:
    """As of np.savez_compressed. Zeros are compressed a thousandfold."""
    np.savez_compressed(NPZ, Wemb=np.zeros((1000, 1000)))
    assert "its arrays are compressed" in str(refusal())


def test_arrays_that_overlap_are_refused() -> None:
    """The directory of a ZIP file may list one array under many names."""
    npz_of(lambda archive: archive.writestr("Wemb.npy", b"\0" * 100_000))
    with zipfile.ZipFile(NPZ, "a") as archive:
        archive.filelist += archive.filelist * 1000
        archive._didModify = True  # type: ignore[attr-defined]
    assert "overlap" in str(refusal())


def test_objects_are_not_unpickled() -> None:
    content = BytesIO()
    np.save(content, np.array([[Bomb(Path("executed"))]], dtype=object))
    npz_of(lambda archive: archive.writestr("Wemb.npy", content.getvalue()))
    assert "has the header" in str(refusal())


def test_an_npz_file_of_another_program_is_refused() -> None:
    write_npz(NPZ, random_arrays(8, 8), "a: b\n")
    assert "d_model: field required" in str(refusal())


def test_a_huge_shape_takes_no_memory() -> None:
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (999999999, 999999999), }\n"
    npz_of(lambda archive: archive.writestr("Wemb.npy", b"\x93NUMPY\1\0\x4b\0" + header + b"\0" * 8))
    assert "is damaged" in str(refusal())


# Archives of `nmt import FILE.zip`: the names and contents of members.
WRONG_ZIPS: dict[str, list[tuple[str, bytes]]] = {
    "a bomb": [("model.npz", b"\0" * 50_000_000)],
    "a name twice": [("a/model.npz", b"a"), ("b/model.npz", b"b")],
    "no name": [("a/.npz", b"a"), ("b/.npz", b"a")],
    "a long name": [("x" * 5000 + ".npz", b"a")],
}


@pytest.mark.parametrize("kind", WRONG_ZIPS)
def test_a_wrong_zip_file_is_refused(kind: str) -> None:
    with zipfile.ZipFile("model.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in WRONG_ZIPS[kind]:
            archive.writestr(name, content)
    with (
        pytest.raises(ModelError, match=r"^model\.zip is damaged|^cannot read model\.zip") as caught,
        unpacked(Path("model.zip")),
    ):
        pass
    check_clear(caught.value)


@pytest.mark.parametrize("name", ["../evil.yml", "/tmp/evil.yml", "..\\evil.yml", "a/../../evil.yml"])
def test_a_zip_file_writes_nowhere_else(name: str) -> None:
    with zipfile.ZipFile("model.zip", "w") as archive:
        archive.writestr(name, b"a: b")
    before = sorted(Path.cwd().parent.rglob("*"))
    with unpacked(Path("model.zip")) as directory:
        (file,) = directory.rglob("*")
        assert file.name.endswith("evil.yml")
    assert sorted(Path.cwd().parent.rglob("*")) == before


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_compressions_are_refused(method: int) -> None:
    with zipfile.ZipFile("model.zip", "w", method) as archive:
        archive.writestr("model.npz", b"\0" * 1000)
    with pytest.raises(ModelError, match="its compression is not Deflate"), unpacked(Path("model.zip")):
        pass


def test_files_with_random_damages_are_refused_or_imported() -> None:
    """Bytes are changed, removed and repeated; nothing but an NmtError is raised, in little memory."""
    draw = random.Random(1)
    contents = {name: (MODEL / name).read_bytes() for name in ("model.npz", "vocab.spm", "decoder.yml")}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    n_refused = 0
    for i in range(soak(80, 5000)):
        name = draw.choice(list(contents))
        (MODEL / name).write_bytes(damaged(draw, contents[name]))
        try:
            import_model(read_marian(MODEL), Path(f"run{i}"))
        except NmtError as error:
            check_clear(error)
            n_refused += 1
        (MODEL / name).write_bytes(contents[name])
    print(f"{n_refused} refused")
    assert n_refused > 30
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000  # KB


def damaged(draw: random.Random, content: bytes) -> bytes:
    """Change a few places, more often in the directory of a ZIP file, at its end, and in headers."""
    changed = bytearray(content)
    for _ in range(draw.choice([1, 1, 2, 5])):
        near = draw.choice([len(changed), min(len(changed), 4000)])
        place = draw.randrange(near) if draw.random() < 0.5 else len(changed) - 1 - draw.randrange(near)
        kind = draw.choice(["byte", "cut", "repeat", "insert"])
        if kind == "byte":
            changed[place] = draw.randrange(256)
        elif kind == "cut":
            del changed[place : place + draw.choice([1, 10, 1000])]
        elif kind == "repeat":
            changed[place:place] = changed[place : place + draw.choice([1, 100])]
        else:
            changed[place:place] = draw.choice([b"\0", b"\xff" * 8, b"9" * 20, b"\n", b"PK\1\2"])
    return bytes(changed)
