import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

from tests.attacks import Counter
from tests.cluster.faults.recorder import Recorder
from tests.cluster.faults.rows import VARIANTS

ROOT = Path(__file__).parent.parent
# Files that run before others of their folder: the longest; and those of the fault matrix with a cluster of
# their own, as the others share one.
FIRST = (
    "test_network",
    "test_pid_1",
    "test_requeue",
    "test_wheel",
)
# Unit tests that mostly wait: beside tests of clusters, which need the processors.
WAITING = (
    "test_agent",
    "test_container_process",
    "test_controller_process",
    "test_executor",
    "test_notices",
    "test_dashboard_relay",
)

settings.register_profile(
    "slurmray",
    deadline=None,
    phases=set(Phase) - {Phase.explain},  # takes minutes when a test fails
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("slurmray")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-goldens", action="store_true", help="update tests/goldens")


def pytest_configure(config: pytest.Config) -> None:
    # Bash starts background jobs with SIGINT ignored, and programs under test would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    config.pluginmanager.register(Counter())
    cache = getattr(config, "cache", None)  # none with `-p no:cacheprovider`
    if cache and not hasattr(config, "workerinput"):  # workers of xdist report to the controller
        config.pluginmanager.register(Recorder(cache))


@pytest.fixture(autouse=True)
def user_folders(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test adds jobs to those that this user has submitted, or reads this user's profiles."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
    monkeypatch.setenv("SLURMRAY_CONFIG", "")


def variant(nodeid: str) -> int:
    """Return the index of a fault case's variant; -1 for other tests."""
    return next((number for number, each in enumerate(VARIANTS) if str(each) in nodeid), -1)


class ByCluster(LoadScopeScheduling):  # type: ignore[misc]
    """Gives a worker all tests of a file, or of one variant of the fault matrix: they share a cluster."""

    def _split_scope(self, nodeid: str) -> str:
        return f"{nodeid.partition('::')[0]} {variant(nodeid)}"


@pytest.hookimpl(optionalhook=True)  # so that `-p no:xdist` works
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByCluster:
    return ByCluster(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run long tests first, variant by variant, so that tests which mostly wait are spread out."""
    folders = [ROOT / "tests" / name for name in ("cluster/faults", "cluster", "judges", "unit")]

    def rank(item: pytest.Item) -> tuple[int, int, bool]:
        is_waiting = item.path.stem in WAITING
        folder = 0 if is_waiting else next(i for i, each in enumerate(folders) if each in item.path.parents)
        return folder, variant(item.nodeid), item.path.stem not in FIRST

    items.sort(key=rank)


@pytest.fixture
def in_checkout(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The checkout, as the current folder."""
    monkeypatch.chdir(ROOT)
    return ROOT


@pytest.fixture
def current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A new folder, as the current folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def bash_44() -> str:
    """Path of the oldest bash that scripts support; downloaded once."""
    done = subprocess.run([ROOT / ".ci/bash-4.4"], check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"no bash 4.4: {done.stderr}"
    # This static bash crashes when it looks up the user in this machine's C library.
    os.environ.setdefault("SHELL", "/bin/bash")
    return done.stdout.strip()
