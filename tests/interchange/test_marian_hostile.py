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
from conftest import rows_of, soak
from marian_models import model_yml, random_arrays, write_marian, write_npz
from reliability.test_untrusted import Bomb

from nmt.errors import ModelError, NmtError
from nmt.interchange.importing import import_model
from nmt.interchange.marian_import import parse_yaml, read_marian, unzipped_model

MODEL = Path("model")
NPZ = MODEL / "model.npz"
PICKLED = pickle.dumps(Bomb(Path("executed")))

# Name, type and shape of an array of zeros that replaces one of the model, and a part of the message. Without a type,
# the array is removed.
WRONG_ARRAYS = rows_of("""
Wemb <f4 2,2 → 'model.shared.weight' is (3, 2), by its settings
Wemb <f4 2 → has the header
Wemb <f4 2,2,2 → has the header
Wemb <f8 2,2 → has the header
Wemb <i4 2,2 → has the header
Wemb |i1 2,2 → has the header
Wemb >f4 2,2 → has the header
Wemb <c8 2,2 → has the header
Wemb |S4 2,2 → has the header
Wemb <M8[s] 2,2 → has the header
Wemb <f4 0,2 → is (1, 2), by its settings
Wemb <f4 2,0 → is (3, 0), by its settings
Wemb → model.shared.weight is missing
encoder_l1_self_Wq → self_attn.q_proj.weight is missing
encoder_l1_self_bq → self_attn.q_proj.bias is missing
encoder_l1_self_Wo_ln_scale → self_attn_layer_norm.weight is missing
decoder_l2_ffn_ffn_ln_bias → layers.1.final_layer_norm.bias is missing
encoder_l1_self_Wq <f4 2,2 → is (2, 2), by its settings (32, 32)
encoder_l1_self_Wq <f4 1,32 → is (32,), by its settings (32, 32)
encoder_l1_self_Wo_ln_scale <f4 1,9 → is (9,), by its settings (32,)
encoder_l1_self_Wo_ln_scale <f4 32,1 → is (1, 32), by its settings (32,)
encoder_l1_ffn_W1 <f4 48,32 → is (32, 48), by its settings (48, 32)
decoder_ff_logit_out_b <f4 1,9 → is (1, 10), by its settings
decoder_ff_logit_out_Wt <f4 2,2 → is (3, 2), by its settings
encoder_l1_self_Wo_ln_scale_pre <f4 1,32 → does not support 'encoder_l1_self_Wo_ln_scale_pre' beside
encoder_top_ln_scale <f4 1,32 → by its settings absent
encoder_l9_self_Wq <f4 2,2 → by its settings absent
encoder_l0_self_Wq <f4 2,2 → by its settings absent
encoder_l999_x <f4 2,2 → by its settings absent
encoder_l99999999_x <f4 2,2 → by its settings absent
Wpos <f4 2,2 → by its settings absent
\x1b[31m <f4 2,2 → by its settings absent
../../evil <f4 2,2 → by its settings absent
""")
# A setting of special:model.yml that replaces one of the model, and a part of the message. Without a value, the setting
# is removed.
WRONG_SETTINGS = rows_of("""
type amun → nmt does not support type='amun'
transformer-decoder-autoreg rnn → nmt does not support transformer-decoder-autoreg='rnn'
transformer-disable-position-embeddings true → nmt does not support transformer-disable
transformer-alibi-shift true → nmt does not support transformer-alibi-shift
right-left true → nmt does not support right-left
transformer-pool true → nmt does not support transformer-pool
transformer-attention-mask [x] → nmt does not support transformer-attention-mask=['x']
dim-emb → d_model: field required
dim-emb 1e3 → d_model: input should be
dim-emb -1 → d_model': input should be
dim-emb 999999999999999999999999999999 → d_model': input should be
dim-emb [1] → d_model: input should be
dim-emb 64 → by its settings
dim-emb 31 → is not divisible by
enc-depth 100000000 → n_encoder_layers': input should be
enc-depth 2 → encoder.layers.1.self_attn.q_proj.weight is missing
dec-depth 1 → by its settings absent
dec-depth 0 → n_decoder_layers': input should be
transformer-heads → encoder_attention_heads: field required
transformer-heads 5 → is not divisible by
transformer-heads 0 → n_heads': input should be
transformer-dim-ffn 7 → by its settings
transformer-ffn-activation tanh → activation_function: input should be
transformer-postprocess da → is missing
transformer-postprocess an → norm: input should be
transformer-postprocess [dan] → norm: input should be
tied-embeddings-all false → is missing
""")
WRONG_YAML = {
    "empty": b"",
    "an alias": b"a: &x [1]\nb: *x",
    "nested": b"a: {b: {c: d}}",
    "deep lists": b"a: " + b"[" * 1_000_000,
    "deep mappings": b"{a: " * 100_000,
    "a tab": b"\ta: b",
    "no UTF-8": b"a: \xff\xfe",
    "NUL": b"a: b\0c",
}
WRONG_YAML_ROWS = rows_of("""
abc
[a, b]
[a]: b
{{a: b}: c}
a: "
!!python/object/apply:os.system [touch executed]
a: b: c
%YAML 9.9
""")
WRONG_YAML |= {row: row.encode() for row in WRONG_YAML_ROWS}
WRONG_VOCABULARIES = rows_of("""
{<unk>: 1, a: 0}
{</s>: 1, <unk>: 2}
{</s>: 0, <unk>: 1, a: 2, b: 2}
{</s>: 0, <unk>: 1, a: 2, b: 9}
{</s>: 0, <unk>: x}
{</s>: 0, <unk>: [1]}
{</s>: 0, <unk>: -1}
{</s>: 0, <unk>: 1.0}
{</s>: 0, <unk>: 99999999999999999999999999999999}
{</s>: 0, <unk>: 1, a: 2, b: 3, c: 4, d: 5, e: 6, f: 7, g: 8}
{</s>: 0, <unk>: 1}
""")
WRONG_DECODERS = rows_of("""
models: [other.npz]
models: [model.npz, vocab.spm]
vocabs: [vocab.spm, decoder.yml, model.npz]
vocabs: [a.spm, b.spm]
vocabs: [/etc/passwd, /etc/shadow]
models: [../..]
models: model
models: ["a\\0b"]
models: ["a\\e[31m"]
beam-size: -1
beam-size: x
beam-size: [1]
normalize: .nan
normalize: inf
""")


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
    result = sorted(Path.cwd().rglob("*"))
    assert result == before
    return caught.value


def check_clear(error: NmtError) -> None:
    message = str(error)
    assert error.exit_code == 2
    assert error.hint
    assert message.isprintable()
    assert len(message) < 700


@pytest.mark.parametrize("row", WRONG_ARRAYS, ids=ascii)
def test_wrong_arrays_are_refused(row: str) -> None:
    change, message = row.split(" → ")
    name, *described = change.split()
    arrays = arrays_of_model()
    n = len(arrays["Wemb"])
    arrays.pop(name, None)
    if described:
        dtype, shape = described
        arrays[name] = np.zeros(tuple(map(int, shape.split(","))), dtype)
    write_npz(NPZ, arrays, model_yml(n, n))
    assert message in str(refusal())


def test_column_major_arrays_are_refused() -> None:
    arrays = arrays_of_model()
    n = len(arrays["Wemb"])
    write_npz(NPZ, arrays | {"Wemb": np.asfortranarray(arrays["Wemb"])}, model_yml(n, n))
    assert "'fortran_order': True" in str(refusal())


@pytest.mark.parametrize("row", WRONG_SETTINGS)
def test_wrong_settings_are_refused(row: str) -> None:
    change, message = row.split(" → ")
    name, *value = change.split()
    arrays = arrays_of_model()
    n = len(arrays["Wemb"])
    lines = model_yml(n, n).splitlines(keepends=True)
    kept = [line for line in lines if line.partition(":")[0] != name]
    kept += [f"{name}: {text}\n" for text in value]
    write_npz(NPZ, arrays, "".join(kept))
    assert message in str(refusal())


@pytest.mark.parametrize("kind", WRONG_YAML)
def test_what_is_no_mapping_of_texts_is_refused(kind: str) -> None:
    with pytest.raises(ValueError, match=r"YAML|it has aliases"):
        parse_yaml(WRONG_YAML[kind])
    (MODEL / "decoder.yml").write_bytes(WRONG_YAML[kind])
    assert "decoder.yml is damaged" in str(refusal())


@pytest.mark.parametrize("vocabulary", WRONG_VOCABULARIES)
def test_a_wrong_vocabulary_is_refused(vocabulary: str) -> None:
    (MODEL / "decoder.yml").unlink()
    (MODEL / "vocab.spm").rename(MODEL / "source.spm")
    (MODEL / "target.spm").write_bytes((MODEL / "source.spm").read_bytes())
    (MODEL / "vocab.yml").write_text(vocabulary)
    refusal()


@pytest.mark.parametrize("content", WRONG_DECODERS)
def test_a_wrong_decoder_yml_is_refused(content: str) -> None:
    (MODEL / "decoder.yml").write_text(content)
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
        unzipped_model(Path("model.zip")),
    ):
        pass
    check_clear(caught.value)


@pytest.mark.parametrize("name", ["../evil.yml", "/tmp/evil.yml", "..\\evil.yml", "a/../../evil.yml"])
def test_a_zip_file_writes_nowhere_else(name: str) -> None:
    with zipfile.ZipFile("model.zip", "w") as archive:
        archive.writestr(name, b"a: b")
    before = sorted(Path.cwd().parent.rglob("*"))
    with unzipped_model(Path("model.zip")) as directory:
        (file,) = directory.rglob("*")
        assert file.name.endswith("evil.yml")
    result = sorted(Path.cwd().parent.rglob("*"))
    assert result == before


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_compressions_are_refused(method: int) -> None:
    with zipfile.ZipFile("model.zip", "w", method) as archive:
        archive.writestr("model.npz", b"\0" * 1000)
    with pytest.raises(ModelError, match="its compression is not Deflate"), unzipped_model(Path("model.zip")):
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
    result = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert result < 300_000  # KB


def damaged(draw: random.Random, content: bytes) -> bytes:
    """Change a few places, more often in the directory of a ZIP file, at its end, and in headers."""
    changed = bytearray(content)
    for _ in range(draw.choice([1, 1, 2, 5])):
        if not changed:
            break
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
