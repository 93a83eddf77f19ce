"""Find a model's directory by path, or by id on the Hugging Face Hub: the model is downloaded to the Hub's cache."""

import os
import re
from pathlib import Path

from nmt.errors import DownloadError, InputError

HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*", re.ASCII)
FILES = ["*config.json", "*vocab.json", "*.spm", "model.safetensors"]


def model_directory(model: str, revision: str | None = None) -> Path:
    """The local directory of a model.

    Args:
        model: a directory, or an id such as Helsinki-NLP/opus-mt-de-en.
        revision: a branch, tag, commit or pull request (refs/pr/5) of the model on the Hub.
    Raises:
        InputError: `model` is neither a directory nor an id, a directory has a `revision`, or huggingface_hub is not
            installed.
        DownloadError: the download fails.
    """
    path = Path(model)
    if path.is_dir():
        if revision is not None:
            raise InputError(f"--revision does not apply to the directory {path}", hint="leave it out")
        return path
    if os.path.lexists(path) or not HUB_ID.fullmatch(model):
        hint = "give a directory, or an id on the Hugging Face Hub, such as Helsinki-NLP/opus-mt-de-en"
        raise InputError(f"{path} is not a directory", hint=hint)
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        hint = "pip install 'nmt-trainer[huggingface]', or give the directory of a downloaded model"
        raise InputError(f"no directory {path}, and huggingface_hub is not installed", hint=hint) from error
    try:
        return Path(snapshot_download(model, revision=revision, allow_patterns=FILES))
    except Exception as error:  # of the Hub, its validators and the network; their classes depend on the version
        reason = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        hint = "check the id and the network, or download the model elsewhere and give its directory"
        raise DownloadError(f"cannot get {model}: {reason:.300}", hint=hint) from error
