"""The tables in README and docs are those of the stored runs."""

from pathlib import Path

import pytest

from bench import results


@pytest.mark.parametrize("path", results.TEXTS, ids=lambda path: path.name)
def test_a_text_shows_the_stored_runs(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert results.renewed(text) == text


def test_the_page_shows_every_stored_run() -> None:
    stored = sorted(results.FOLDER.glob("*.json"))
    assert stored
    assert results.PAGE.read_text(encoding="utf-8") == results.page(stored)
