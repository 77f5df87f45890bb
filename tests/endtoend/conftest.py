"""What tests on the bundled model share."""

from collections.abc import Iterator

import pytest

from backends.base import Context, Model


@pytest.fixture(scope="module")
def context(demo: Model) -> Iterator[Context]:
    context = demo.open(1024)
    yield context
    context.close()
