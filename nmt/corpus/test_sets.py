"""Public test sets, downloaded by sacreBLEU. Imports no torch."""

import difflib
import logging
from pathlib import Path
from typing import Any

from nmt.corpus.download import described
from nmt.errors import DownloadError, InputError
from nmt.evaluate import check_references
from nmt.text.lines import read_lines


def public_test_set(name: str, languages: str) -> tuple[list[str], list[list[str]]]:
    """Source and references of a test set such as wmt14/full, kept by sacreBLEU in ~/.sacrebleu or $SACREBLEU."""
    from sacrebleu.dataset import DATASETS

    if name not in DATASETS:
        close = difflib.get_close_matches(name, DATASETS, n=3, cutoff=0.3)
        hint = f"`sacrebleu --list` lists them{'; perhaps ' if close else ''}{' or '.join(close)}"
        raise InputError(f"sacreBLEU has no test set '{name}'", hint=hint)
    dataset: Any = DATASETS[name]
    if languages not in dataset.langpairs:
        hint = f"it has {', '.join(sorted(dataset.langpairs))}"
        raise InputError(f"sacreBLEU's {name} is not in '{languages}'", hint=hint)
    messages: list[str] = []
    logger = logging.getLogger("sacrebleu")
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    logger.addHandler(handler)
    try:
        files = [dataset.get_source_file(languages), *dataset.get_reference_files(languages)]
        source, *references = [read_lines([Path(file)]) for file in files]
    except (Exception, SystemExit) as error:  # sacreBLEU lets errors of all its libraries through, or exits
        reason = messages[0] if isinstance(error, SystemExit) and messages else described(error)
        hint = f"check the network, then repeat the command; if it fails again, delete {dataset._outdir}"
        raise DownloadError(f"sacreBLEU cannot download {name}: {' '.join(reason.split())}", hint=hint) from error
    finally:
        logger.removeHandler(handler)
    check_references(references, source, "source lines")
    return source, references
