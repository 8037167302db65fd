"""The tables in README and docs are those of the stored runs."""

from bench import results


def test_the_readme_shows_the_stored_runs() -> None:
    readme = results.README.read_text(encoding="utf-8")
    assert results.renewed(readme) == readme


def test_the_page_shows_every_stored_run() -> None:
    stored = sorted(results.FOLDER.glob("*.json"))
    assert stored
    assert results.PAGE.read_text(encoding="utf-8") == results.page(stored)
