"""`wflab` on the command line."""

from __future__ import annotations

import filecmp
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.markup import escape

import wflab

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    help="A durable-workflow lab in a notebook.",
    epilog="Example: wflab lab --folder ~/lessons",
)
console = Console(stderr=True, highlight=False, soft_wrap=True)
FIRST_NOTEBOOK = "01-start-once.ipynb"
LAB_PACKAGES = ("jupyterlab", "ipywidgets", "anywidget", "pandas", "stripe")
STOP_LIMIT_S = 5.0


def _tell_version(asked: bool) -> None:
    if asked:
        typer.echo(f"wflab {wflab.__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Tell the version, and end.")
    ] = False,
) -> None:
    """Options that stand before any command."""


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    epilog="Example: wflab lab --folder ~/lessons --port 9000 -- --ServerApp.ip=0.0.0.0",
)
def lab(
    context: typer.Context,
    folder: Annotated[
        Path | None,
        typer.Option(
            help="Where the notebooks and the database go. When not given: wflab-lab in the working folder, "
            "or in the home folder where that one can't be written."
        ),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="JupyterLab's port, or the next free one.")] = 8888,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only tell the address.")] = False,
) -> None:
    """Open JupyterLab on a copy of the example notebooks, with an embedded SQLite database.

    Notebooks that are there already stay as they are. What follows -- goes to JupyterLab.
    WFLAB_DATABASE_URL, where set, names another database.
    """
    missing = [name for name in LAB_PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        _refuse(f"The lab needs {', '.join(missing)}", "Install it with:  pip install 'wflab[lab]'")
    place = (folder or _default_folder()).expanduser().absolute()
    try:
        kept = _copy_examples(_examples(), place)
    except OSError as error:
        _refuse(f"{place} can't be written: {error}", "Choose another folder with --folder.")
    for name in kept:
        console.print(f"{escape(name)}: yours differs from the example, and stays. Rename it to get the example anew.")
    database = os.environ.get("WFLAB_DATABASE_URL") or f"sqlite:///{(place / 'wflab.db').as_posix()}"
    console.print(f"Notebooks: [bold]{escape(str(place))}[/]")
    console.print(f"Runs: [bold]{escape(_without_password(database))}[/]")
    console.print("Ctrl-C ends the lab.")
    command = [sys.executable, "-m", "jupyterlab", f"--ServerApp.root_dir={place}", f"--ServerApp.port={port}"]
    # One Ctrl-C is enough: no "Shut down this Jupyter server (y/[n])?".
    command += [f"--LabApp.default_url=/lab/tree/{FIRST_NOTEBOOK}", "--LabApp.news_url=", "--ServerApp.answer_yes=True"]
    if no_browser:
        command.append("--no-browser")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        # In a container one is often root, and JupyterLab asks for a word of consent then.
        command.append("--allow-root")
    raise typer.Exit(_serve(command + context.args, place, {**os.environ, "WFLAB_DATABASE_URL": database}))


def _refuse(problem: str, way_out: str) -> NoReturn:
    console.print(f"[red]{escape(problem)}.[/] {escape(way_out)}")
    raise typer.Exit(1)


def _serve(command: list[str], place: Path, environment: dict[str, str]) -> int:
    """Run JupyterLab until it ends, and give its exit code: 0 also when Ctrl-C ended it."""
    with subprocess.Popen(command, cwd=place, env=environment) as server:
        # Ended from outside, this process must not leave its server behind.
        signal.signal(signal.SIGTERM, lambda _number, _frame: server.terminate())
        try:
            code = server.wait()
        except KeyboardInterrupt:
            # A terminal sends Ctrl-C to the server, too; `kill -INT` doesn't.
            try:
                server.wait(STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                server.terminate()
                server.wait()
            return 0
    return code if code >= 0 else 128 - code


def _default_folder() -> Path:
    here = Path.cwd()
    return (here if os.access(here, os.W_OK) else Path.home()) / "wflab-lab"


def _examples() -> Path:
    """The example notebooks: inside the package when installed, beside it in a checkout."""
    package = Path(wflab.__file__).parent
    inside = package / "notebooks"
    return inside if inside.is_dir() else package.parent / "notebooks"


def _copy_examples(examples: Path, place: Path) -> list[str]:
    """Copy what is not there yet. Gives the names of the notebooks that are, and differ."""
    place.mkdir(parents=True, exist_ok=True)
    kept = []
    for example in sorted(examples.rglob("*")):
        name = example.relative_to(examples)
        if not example.is_file() or example.suffix.startswith(".db") or any(part[0] == "." for part in name.parts):
            continue
        mine = place / name
        if not mine.exists():
            mine.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(example, mine)
        elif not filecmp.cmp(example, mine, shallow=False):
            kept.append(str(name))
    return kept


def _without_password(url: str) -> str:
    return re.sub(r"(://[^:/@]*):.*@", r"\1:***@", url)


if __name__ == "__main__":
    app()
