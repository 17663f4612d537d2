"""How tests are shared out between workers, what a mark of a tier has to say, and that the checkout stays as it is."""

from __future__ import annotations

import sys

import pytest
from hypothesis import settings

from checkout import CheckoutGuard
from container_image import engine_with_image
from project_files import PACKAGES
from summary import Summary
from tiers import PROOF_GROUPS

FIRST = ("test_demo", "test_learning", "test_train", "test_kill", "test_cli", "test_steps", "test_ray")
"""Files whose single tests are long: begun last, one of them would go on alone while the other worker has nothing."""


# Tests of the core that play in a package's environment use what its tests and bars do.
sys.path += [str(package / part) for package in PACKAGES for part in ("tests", "bars")]

settings.register_profile("machine-independent", deadline=None, derandomize=True, database=None)
settings.load_profile("machine-independent")


def pytest_configure(config: pytest.Config) -> None:
    """Note processor times; let the process that starts the workers, or the only one, look after the checkout."""
    config.pluginmanager.register(Summary(), "summary")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(CheckoutGuard(), "checkout")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give every file to one worker, so that its fixtures are made once, but for files that share a group by a mark."""
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.path.stem))
        mark = item.get_closest_marker("proof")
        if mark is not None and (len(mark.args) != 1 or mark.args[0] not in PROOF_GROUPS):
            raise pytest.UsageError(f"{item.nodeid}: mark it proof(GROUP), where GROUP is one of {[*PROOF_GROUPS]}")
    items.sort(key=lambda item: FIRST.index(item.path.stem) if item.path.stem in FIRST else len(FIRST))


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> str:
    """Podman or Docker with the image of `container_image`; the test is left out where neither runs it."""
    name, variables = engine_with_image()
    if not name:
        pytest.skip(variables)
    for key, value in variables.items():
        monkeypatch.setenv(key, value)
    return name
