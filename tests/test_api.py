"""The names that the package offers."""

import nmt


def test_dir_lists_what_the_package_offers() -> None:
    assert {"load", "Translator", "attention_summary", "NmtError"} <= set(dir(nmt))
    assert all(hasattr(nmt, name) for name in dir(nmt))
