"""Each notebook runs from top to bottom, as it does for whoever opens it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.conftest import needs

try:
    import nbformat
    from nbclient import NotebookClient
except ImportError:
    NotebookClient = None  # type: ignore[assignment,misc]

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_from_top_to_bottom(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs(NotebookClient is not None, "nbclient: pip install 'wflab[test]'")
    monkeypatch.delenv("WFLAB_DATABASE_URL", raising=False)
    copy = Path(shutil.copy(path, tmp_path))
    notebook = nbformat.read(copy, as_version=4)
    for _ in range(2):  # a second time on the same database, as when one comes back to it
        client = NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}})
        client.execute()
        for cell in notebook.cells:
            if cell.cell_type == "code":
                assert not any(output.get("name") == "stderr" for output in cell.outputs), cell.source
    assert (tmp_path / "wflab.db").exists()


def test_the_first_notebook_ends_with_one_charge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs(NotebookClient is not None, "nbclient: pip install 'wflab[test]'")
    monkeypatch.setenv("WFLAB_DATABASE_URL", f"sqlite:///{tmp_path / 'lesson.db'}")
    notebook = nbformat.read(NOTEBOOKS[0], as_version=4)
    NotebookClient(notebook, timeout=120).execute()
    shown = notebook.cells[-1].outputs[-1]["data"]
    assert shown["text/html"].count("ch_") == 1
    assert shown["text/html"].count("$10.00") == 1
    run_shown = [
        output["data"]["text/html"]
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if "text/html" in output.get("data", {}) and '<table class="wflab-lanes">' in output["data"]["text/html"]
    ]
    assert len(run_shown) == 2
    assert "✕ 1" in run_shown[0]
    assert "✓ 2" in run_shown[0]
