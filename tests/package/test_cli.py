"""`wflab` on the command line: help, the lab's folder, a lab opened and closed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from typer.testing import CliRunner

import wflab
from tests.conftest import needs
from wflab import cli

EXAMPLES = Path(wflab.__file__).parents[1] / "notebooks"
FIRST = cli.FIRST_NOTEBOOK
LIMIT_S = 60


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The servers that a command would have started; none is."""
    commands: list[list[str]] = []

    def serve(command: list[str], place: Path, environment: dict[str, str]) -> int:
        commands.append([*command, str(place), environment["WFLAB_DATABASE_URL"]])
        return 0

    monkeypatch.setattr(cli, "_serve", serve)
    monkeypatch.setattr(cli.importlib.util, "find_spec", lambda name: name)
    monkeypatch.delenv("WFLAB_DATABASE_URL", raising=False)
    return commands


def invoke(*arguments: object, code: int = 0) -> str:
    result = CliRunner().invoke(cli.app, [str(argument) for argument in arguments], env={"COLUMNS": "200"})
    assert result.exit_code == code, result.output
    return result.output


def test_the_version_is_told() -> None:
    assert invoke("--version") == f"wflab {wflab.__version__}\n"


@pytest.mark.parametrize("arguments", [["--help"], ["lab", "--help"]])
def test_help_has_an_example(arguments: list[str]) -> None:
    assert "Example: wflab lab" in invoke(*arguments)


def test_the_lab_gets_the_examples_and_a_database_in_its_folder(started: list[list[str]], tmp_path: Path) -> None:
    place = tmp_path / "a [new] folder" / "deeper"
    told = invoke("lab", "--folder", place, "--port", "9123", "--no-browser", "--", "--ServerApp.token=x")
    assert (place / FIRST).read_bytes() == (EXAMPLES / FIRST).read_bytes()
    assert str(place) in told.replace("\n", "")
    (command,) = started
    assert command[-2:] == [str(place), f"sqlite:///{place.as_posix()}/wflab.db"]
    assert {"--ServerApp.port=9123", "--no-browser", "--ServerApp.token=x"} <= set(command)


def test_a_notebook_that_the_user_changed_is_kept_and_new_ones_are_added(
    started: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    examples, place = tmp_path / "examples", tmp_path / "mine"
    (examples / "images").mkdir(parents=True)
    (examples / FIRST).write_text("theirs")
    (examples / "wflab.db-wal").write_text("left by a run")
    monkeypatch.setattr(cli, "_examples", lambda: examples)
    invoke("lab", "--folder", place)
    (place / FIRST).write_text("mine")
    (examples / "02-more.ipynb").write_text("more")
    (examples / "images" / "one.svg").write_text("picture")

    told = invoke("lab", "--folder", place)

    assert f"{FIRST}: yours differs" in told
    assert "02-more.ipynb" not in told
    left = {path.relative_to(place).as_posix(): path.read_text() for path in place.rglob("*") if path.is_file()}
    assert left == {FIRST: "mine", "02-more.ipynb": "more", "images/one.svg": "picture"}


def test_the_folder_is_in_the_working_folder_or_else_at_home(
    started: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, home = tmp_path / "here", tmp_path / "home"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USERPROFILE", str(home))
    invoke("lab")
    monkeypatch.setattr(cli.os, "access", lambda *_: False)
    invoke("lab")
    assert [command[-2] for command in started] == [str(here / "wflab-lab"), str(home / "wflab-lab")]


def test_a_folder_that_cant_be_written_is_refused_with_the_way_out(started: list[list[str]], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "--folder" in invoke("lab", "--folder", tmp_path / "file", code=1)
    assert started == []


def test_another_database_is_used_where_named_and_its_password_is_not_told(
    started: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WFLAB_DATABASE_URL", "postgresql://me:sec/r@t@there/db")
    told = invoke("lab", "--folder", tmp_path)
    assert "postgresql://me:***@there/db" in told
    assert "sec" not in told
    assert started[0][-1] == "postgresql://me:sec/r@t@there/db"


def test_without_the_lab_extra_it_says_how_to_get_it(
    started: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli.importlib.util, "find_spec", lambda name: None if name == "anywidget" else name)
    told = invoke("lab", "--folder", tmp_path / "new", code=1)
    assert "anywidget" in told
    assert "pip install 'wflab[lab]'" in told
    assert not (tmp_path / "new").exists()


def port_of(address: str) -> int:
    return urlsplit(address).port or 0


def wait_until_it_listens(port: int) -> None:
    """JupyterLab tells its address a moment before it listens there, and nothing when it does."""
    end = time.monotonic() + LIMIT_S
    while not listens(port):
        assert time.monotonic() < end


def listens(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def open_lab(folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`wflab lab` in a process group of its own, and the address that it tells."""
    needs(cli.importlib.util.find_spec("jupyterlab") is not None, "JupyterLab: pip install 'wflab[lab]'")
    needs(hasattr(os, "killpg"), "POSIX signals")
    command = [sys.executable, "-c", "from wflab.cli import app; app()", "lab", "--folder", str(folder), "--no-browser"]
    command += ["--port", "0", "--", "--IdentityProvider.token=secret"]
    environment = {**os.environ, "PYTHONPATH": str(EXAMPLES.parent), "PYTHONUNBUFFERED": "1"}
    lab = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True, env=environment)
    try:
        assert lab.stderr is not None
        address = next(line.split()[-1] for line in lab.stderr if "http://127.0.0.1" in line)
        wait_until_it_listens(port_of(address))
        yield lab, address
    finally:
        if lab.poll() is None:
            os.killpg(lab.pid, signal.SIGKILL)
        lab.communicate(timeout=LIMIT_S)


@pytest.mark.parametrize("way", ["Ctrl-C", "kill -INT", "kill"])
def test_the_lab_opens_the_first_lesson_and_leaves_nothing_behind(way: str, tmp_path: Path) -> None:
    with open_lab(tmp_path) as (lab, address):
        with urllib.request.urlopen(f"{address.partition('/lab')[0]}/?token=secret", timeout=LIMIT_S) as answer:
            assert f"/lab/tree/{FIRST}" in answer.url
            assert "jupyter-config-data" in answer.read().decode()
        {
            "Ctrl-C": lambda: os.killpg(lab.pid, signal.SIGINT),
            "kill -INT": lambda: lab.send_signal(signal.SIGINT),
            "kill": lab.terminate,
        }[way]()
        _, told = lab.communicate(timeout=LIMIT_S)
        assert lab.returncode == 0, told
        assert "(y/[n])" not in told
        assert not listens(port_of(address))
