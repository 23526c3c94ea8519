"""Pods run in the images where `make image-test` built them, else in the checkout."""

import os
from collections.abc import Iterator

import pytest

from tests.testbed.images import VARIABLE, ImageRoots, build_images
from tests.testbed.pods import CheckoutRoots, Roots
from tests.testbed.requirements import skipping_where_unavailable


@pytest.fixture(scope="session")
def images() -> Iterator[ImageRoots]:
    chosen = os.environ.get(VARIABLE, "")
    if chosen not in {"build", "built"}:
        pytest.skip("only `make image-test` builds the images")
    with skipping_where_unavailable("kubernetes", what="images"):
        if chosen == "build":
            build_images()
        roots = ImageRoots()
    yield roots
    roots.close()


@pytest.fixture(scope="session")
def roots(request: pytest.FixtureRequest) -> Roots:
    if os.environ.get(VARIABLE):
        found: ImageRoots = request.getfixturevalue("images")
        return found
    with skipping_where_unavailable("kubernetes", what="pods in the checkout"):
        return CheckoutRoots()
