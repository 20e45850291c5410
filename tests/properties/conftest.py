"""`--long` soaks: many examples, new ones at each run; otherwise a few fixed ones."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, settings

# no shrinking: an example costs half a minute, and the failure prints its query and history
COMMON = {
    "deadline": None, "database": None, "suppress_health_check": list(HealthCheck), "phases": [Phase.generate],
    "print_blob": True,
}  # fmt: skip
settings.register_profile("few", max_examples=8, derandomize=True, **COMMON)  # type: ignore[arg-type]
settings.register_profile("soak", max_examples=1200, **COMMON)  # type: ignore[arg-type]


def pytest_configure(config: pytest.Config) -> None:
    long = bool(config.getoption("--long"))
    settings.load_profile("soak" if long else "few")
    if long:
        config.option.timeout = 0
