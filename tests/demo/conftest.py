"""An open provider on a clock that the test sets."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from tests.conftest import needs
from tests.demo.helpers import Clock
from wflab.demo import PaymentProvider


@pytest.fixture(autouse=True)
def stripe_is_there() -> None:
    needs(find_spec("stripe") is not None, "the stripe client: pip install 'wflab[lab]'")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def provider(clock: Clock) -> Iterator[PaymentProvider]:
    with PaymentProvider(clock=clock) as open_:
        yield open_
