"""The folder `bars` is on the path, for tests check what bars measure with. Containers need the repository."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent / "bars"))

if find_spec("container_image") is None:

    @pytest.fixture
    def engine() -> str:
        """An engine of containers with the image that the repository's tests make."""
        pytest.skip("the image of these tests is made in the repository: python -m pytest environments/repository")
