"""Algebra room: what can go wrong, said to a person. In: facts from every other room. Out: one sentence each.

Each class is one kind of answer a caller can act on; `str(error)` says what happened, where, and what to do.
"""

from __future__ import annotations

from dataclasses import dataclass


class DeltafoldError(Exception):
    """Anything Deltafold refuses or cannot do; the message is complete, no traceback is needed to understand it.

    logged: what logs are told, where the message itself shows values of rows.
    """

    def __init__(self, message: str, logged: str | None = None) -> None:
        super().__init__(message)
        self._logged = logged

    @property
    def logged(self) -> str:
        """The message, with no value of a row in it."""
        return str(self) if self._logged is None else self._logged


class DeltafoldWarning(UserWarning):
    """Something that goes on otherwise than it was asked to; the message is complete, as an error's is."""


class SourceError(DeltafoldError):
    """A source cannot be read as asked: unknown, missing, malformed, vacuumed, replaced or of another schema."""


class BusyError(DeltafoldError):
    """Another process is refreshing this view."""


class ChangedQueryError(DeltafoldError):
    """The query (or a source's schema) is not the one that the stored state was built for."""


class StateError(DeltafoldError):
    """The stored state is not what its journal says: damaged, newer than this product, or removed."""


class StorageError(DeltafoldError):
    """The disk is full, or does not let this user write; what was begun goes on when that is mended."""


class CatalogError(DeltafoldError):
    """The catalog does not hold a view's SQL name: another's has it, a database or a permission is missing."""


class QueryError(DeltafoldError):
    """The query is not valid Spark SQL over the declared sources."""


@dataclass(frozen=True)
class Refusal:
    """Why one node cannot be maintained incrementally, and the way out.

    node: the operator as explain prints it; because: the reason; instead: what the user can do.
    """

    node: str
    because: str
    instead: str

    def __str__(self) -> str:
        return f"{self.node} cannot be maintained incrementally: {self.because}. Instead: {self.instead}."


class RefusedError(DeltafoldError):
    """The compiler refuses the query; `refusals` holds every reason, the first one also as attributes."""

    def __init__(self, refusals: tuple[Refusal, ...]) -> None:
        super().__init__("\n".join(str(refusal) for refusal in refusals))
        self.refusals = refusals
        self.node, self.because, self.instead = refusals[0].node, refusals[0].because, refusals[0].instead
