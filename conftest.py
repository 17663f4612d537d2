"""How tests are shared out between workers, what a mark of a tier has to say, and that the checkout stays as it is."""

from __future__ import annotations

import gc
import re
import signal
import sys
from collections.abc import Iterator
from functools import cache

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from checkout import CheckoutGuard
from container_image import engine_with_image
from project_files import PACKAGES, ROOT
from summary import Summary
from tiers import PROOF_GROUPS
from wanderlust.errors import SandboxFailure

FIRST = ("test_demo", "test_learning", "test_train", "test_kill", "test_cli", "test_steps", "test_ray")
"""Files whose single tests are long: begun last, one of them would go on alone while the other worker has nothing."""


# Tests of the core that play in a package's environment use what its tests and bars do.
sys.path += [str(package / part) for package in PACKAGES for part in ("tests", "bars")]
# Tests of one room use those of another.
sys.path += sorted({str(path.parent) for path in (ROOT / "tests").glob("*/test_*.py")})

settings.register_profile("machine-independent", deadline=None, derandomize=True, database=None)
settings.load_profile("machine-independent")


def pytest_configure(config: pytest.Config) -> None:
    """Note processor times; let the process that starts the workers, or the only one, look after the checkout.

    A shell that starts `make test` in the background has it ignore SIGINT, and what tests start would do so, too.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.pluginmanager.register(Summary(), "summary")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(CheckoutGuard(), "checkout")


class FileScheduling(LoadScopeScheduling):
    """Gives every file to one worker, so that its fixtures are made once; files whose marks name one group, too."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid.partition("::")[0])


@cache
def group_of(file: str) -> str:
    """The group that marks in a file name, `xdist_group("browser")`, or else the file itself."""
    marks = re.findall(r'xdist_group\("(\w+)"\)', (ROOT / file).read_text(encoding="utf-8"))
    return marks[0] if marks else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> FileScheduling:
    """xdist's own `loadgroup` finds no group of a test since pytest 9.2."""
    return FileScheduling(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files whose single tests are long, and refuse a mark of a tier that there is not."""
    for item in items:
        mark = item.get_closest_marker("proof")
        if mark is not None and (len(mark.args) != 1 or mark.args[0] not in PROOF_GROUPS):
            raise pytest.UsageError(f"{item.nodeid}: mark it proof(GROUP), where GROUP is one of {[*PROOF_GROUPS]}")
    items.sort(key=lambda item: FIRST.index(item.path.stem) if item.path.stem in FIRST else len(FIRST))


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end: garbage is looked for elsewhere."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call() -> Iterator[None]:
    """Leave out what runs installed packages in the sandbox where none of its Pythons has this one's version."""
    try:
        return (yield)
    except SandboxFailure as error:
        if not re.match(r"no python\d\.\d+ ", str(error)):
            raise
        pytest.skip(str(error))


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> str:
    """Podman or Docker with the image of `container_image`; the test is left out where neither runs it."""
    name, variables = engine_with_image()
    if not name:
        pytest.skip(variables)
    for key, value in variables.items():
        monkeypatch.setenv(key, value)
    return name
