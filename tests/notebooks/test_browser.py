"""The lab as a user meets it: `wflab lab`, JupyterLab, Chromium."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import needs

try:
    from playwright.sync_api import sync_playwright
except ImportError:
    sync_playwright = None  # type: ignore[assignment]

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
ARGUMENTS = "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
SHOTS = Path(__file__).parents[2] / ".screenshots"
pytestmark = [pytest.mark.browser, pytest.mark.filterwarnings("ignore::ResourceWarning")]


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """A lab that `wflab lab` has opened."""
    needs(shutil.which("jupyter-lab", path=str(Path(sys.executable).parent)) is not None, "JupyterLab")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "wflab.cli", "lab", "--folder", str(tmp_path / "lab"), "--port", str(port)]
    command += ["--no-browser", "--IdentityProvider.token=test", "--expose-app-in-browser"]
    environment = {name: value for name, value in os.environ.items() if name != "WFLAB_DATABASE_URL"}
    with (tmp_path / "lab.log").open("w") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)
    try:
        _wait_until_open(f"http://127.0.0.1:{port}/api?token=test", server)
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(server.pid, 15)
        server.wait(30)


def _wait_until_open(url: str, server: subprocess.Popen[bytes]) -> None:
    while server.poll() is None:
        try:
            urllib.request.urlopen(url).close()
            return
        except urllib.error.URLError:
            server.poll()
    raise AssertionError("the lab did not open")


def test_the_first_lesson_runs_in_a_browser_in_both_themes(address: str, tmp_path: Path) -> None:
    needs(sync_playwright is not None and CHROMIUM is not None, "Playwright and Chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS.split())
        page = browser.new_page(viewport={"width": 1280, "height": 1000})
        page.goto(f"{address}/lab/tree/01-start-once.ipynb?token=test&reset")
        _run_all(page)
        shown = page.locator(".wflab-lanes")
        shown.first.wait_for(timeout=60_000)
        SHOTS.mkdir(exist_ok=True)
        for theme in ("JupyterLab Light", "JupyterLab Dark"):
            page.evaluate(f"window.jupyterapp.commands.execute('apputils:change-theme', {{theme: '{theme}'}})")
            page.wait_for_function(
                "theme => document.body.dataset.jpThemeName === theme && getComputedStyle(document.body)", arg=theme
            )
            badge = page.locator(".wflab-badge.wflab-completed").first
            badge.scroll_into_view_if_needed()
            contrast = page.evaluate(_CONTRAST, badge.element_handle())
            assert contrast >= 4.5, f"{theme}: {contrast:.1f}"
            page.screenshot(path=str(SHOTS / f"01-start-once-{theme.split()[1].lower()}.png"))
        assert page.locator("[data-mime-type='application/vnd.jupyter.error']").count() == 0
        text = page.locator(".jp-OutputArea-output").last.inner_text()
        assert len(re.findall(r"ch_\w+", text)) == 1, text
        browser.close()
    assert (tmp_path / "lab" / "wflab.db").exists()


def _run_all(page: Any) -> None:
    """Run all cells, once the kernel has answered: before that it would silently run nothing."""
    page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=60_000)
    page.wait_for_function("window.jupyterapp?.commands.hasCommand('notebook:run-all-cells')")
    session = "window.jupyterapp.shell.currentWidget?.sessionContext?.session"
    page.wait_for_function(f"{session}?.kernel?.connectionStatus === 'connected'", timeout=60_000)
    page.evaluate(f"async () => {{ await {session}.kernel.info; }}")
    page.wait_for_function(f"{session}.kernel.status === 'idle'", timeout=60_000)
    page.evaluate("window.jupyterapp.commands.execute('notebook:run-all-cells')")


_CONTRAST = """element => {
    const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
    const rgb = colour => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
        return canvas.getImageData(0, 0, 1, 1).data; };
    const light = colour => [...rgb(colour)].slice(0, 3).map(v => v / 255)
        .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
        .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
    let behind = element;
    while (behind && rgb(getComputedStyle(behind).backgroundColor)[3] === 0) behind = behind.parentElement;
    const a = light(getComputedStyle(element).color);
    const b = light(getComputedStyle(behind || document.body).backgroundColor);
    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
}"""
