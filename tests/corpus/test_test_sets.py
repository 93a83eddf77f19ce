"""Public test sets that sacreBLEU downloads from a local server."""

import hashlib
import io
import tarfile
from pathlib import Path

import pytest
from mirror import Mirror, serving
from sacrebleu.dataset import DATASETS
from sacrebleu.dataset.plain_text import PlainTextDataset

from nmt.corpus.test_sets import public_test_set
from nmt.errors import DownloadError, InputError


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """The archive that the server offers; sacreBLEU's directory is replaced by a temporary one."""
    monkeypatch.setattr("sacrebleu.dataset.base.SACREBLEU_DIR", str(tmp_path / "sacrebleu"))
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as tar:
        for name, text in (("x.en", "One.\nTwo.\n"), ("x.de", "Eins.\nZwei.\n")):
            info = tarfile.TarInfo(name)
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text.encode()))
    return content.getvalue()


def publish(server: Mirror, monkeypatch: pytest.MonkeyPatch, content: bytes, md5: str = "") -> None:
    server.files["/x.tar.gz"] = content
    dataset = PlainTextDataset(
        "local/x",
        data=[f"{server.url}/x.tar.gz"],
        md5=[md5 or hashlib.md5(content).hexdigest()],
        langpairs={"en-de": ["x.en", "x.de"]},
    )
    monkeypatch.setitem(DATASETS, "local/x", dataset)


def test_source_and_references(archive: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving() as server:
        publish(server, monkeypatch, archive)
        assert public_test_set("local/x", "en-de") == (["One.", "Two."], [["Eins.", "Zwei."]])
    assert public_test_set("local/x", "en-de")[0] == ["One.", "Two."], "it is kept: no server is needed"


def test_a_wrong_hash_is_one_line(archive: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving() as server:
        publish(server, monkeypatch, archive, md5="0" * 32)
        with pytest.raises(DownloadError, match=r"^sacreBLEU cannot download local/x: [^\n]*MD5[^\n]*$") as caught:
            public_test_set("local/x", "en-de")
    assert caught.value.hint.endswith("sacrebleu/local/x"), "what to delete"


def test_a_missing_file_is_one_line(archive: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving() as server:
        publish(server, monkeypatch, archive)
        server.files.clear()
        with pytest.raises(DownloadError, match=r"^sacreBLEU cannot download local/x: HTTP 404 Not Found$"):
            public_test_set("local/x", "en-de")


def test_unknown_names() -> None:
    with pytest.raises(InputError, match="sacreBLEU has no test set 'wmt14/ful'") as caught:
        public_test_set("wmt14/ful", "en-de")
    assert "wmt14/full" in caught.value.hint
    with pytest.raises(InputError, match="sacreBLEU's wmt14/full is not in 'de-zh'") as caught:
        public_test_set("wmt14/full", "de-zh")
    assert "en-de" in caught.value.hint
