"""How errors become failed steps."""

import dagster as dg
import pytest

from assets.failures import CRASHES, failures
from incremental.algebra.errors import BusyError, DeltafoldError, Refusal, RefusedError, SourceError


@pytest.mark.parametrize(
    ("error", "again"), [(SourceError("sales is not there; drop its files."), False), (BusyError("Wait."), True)]
)
def test_the_sentence_is_the_description_and_only_waiting_helps(error: DeltafoldError, again: bool) -> None:
    with pytest.raises(dg.Failure) as raised, failures():
        raise error
    assert raised.value.description == str(error)
    assert raised.value.allow_retries is again


def test_a_refusal_tells_its_parts() -> None:
    with pytest.raises(dg.Failure) as raised, failures():
        raise RefusedError((Refusal("limit 5", "it is not stable", "order the rows"),))
    told = {name: value.value for name, value in raised.value.metadata.items()}
    assert told == {
        "error": "RefusedError",
        "node": "limit 5",
        "because": "it is not stable",
        "instead": "order the rows",
    }


def test_a_crash_passes_through_and_is_retried() -> None:
    with pytest.raises(ZeroDivisionError), failures():
        _ = 1 / 0
    assert CRASHES.max_retries > 0
