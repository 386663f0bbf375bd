"""Runs `async def` tests, and gives them Labs on fresh databases."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

import pytest

from wflab import Lab

TEST_LIMIT_S = 60.0


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--soak", action="store_true", help="run the long tests under load, too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--soak"):
        for item in items:
            if item.get_closest_marker("soak"):
                item.add_marker(pytest.mark.skip(reason="a long run under load: give --soak"))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an `async def` test on a loop of its own, with its async-generator fixtures on that loop.

    Such a fixture is a plain function that returns an async generator (`lab` below): pytest hands it over unopened.
    One per test: a wider scope would take it from loop to loop. Another fixture that asks for it gets it unopened, too.
    """
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    given = {name: pyfuncitem.funcargs[name] for name in names if name in pyfuncitem.funcargs}

    async def run() -> None:
        # The stack closes every fixture, also when the test or the closing of another one raises.
        async with contextlib.AsyncExitStack() as opened, asyncio.timeout(TEST_LIMIT_S):
            for name, value in given.items():
                if inspect.isasyncgen(value):
                    opened.push_async_callback(_exhaust, value)
                    given[name] = await anext(value)
            await pyfuncitem.obj(**given)

    asyncio.run(run())
    return True


async def _exhaust(fixture: AsyncGenerator[Any, None]) -> None:
    async for _ in fixture:
        raise RuntimeError("a fixture yields once")


def needs(is_there: bool, what: str) -> None:
    """Skip on a user's machine that lacks something; in CI its lack is a failure."""
    if is_there:
        return
    if os.environ.get("CI"):
        pytest.fail(f"CI must have {what}")
    pytest.skip(f"needs {what}")


@pytest.fixture
def url(tmp_path: Any) -> str:
    """A fresh database."""
    return f"sqlite:///{tmp_path / 'wflab.db'}"


@pytest.fixture
def lab(url: str) -> AsyncIterator[Lab]:
    """A Lab on the test's own loop, in virtual time."""
    return _opened(lambda: Lab(url, inline=True))


@pytest.fixture
def real_lab(url: str) -> AsyncIterator[Lab]:
    """A Lab as users have it: its engine on a thread, in real time."""
    return _opened(lambda: Lab(url))


async def _opened(make: Callable[[], Lab]) -> AsyncIterator[Lab]:
    async with make() as opened:
        yield opened
