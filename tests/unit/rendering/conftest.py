import pytest


@pytest.fixture(scope="session", params=["bash", "bash 4.4"])
def bash(request: pytest.FixtureRequest) -> str:
    """This machine's bash, and the oldest one that scripts are for."""
    return str(request.getfixturevalue("bash_44")) if request.param == "bash 4.4" else "/bin/bash"
