"""Refuse two datasets of a code location in one folder: a reader of one would get the rows of the other.

Definitions are merged where none of these modules sees them. So the components of a project are compared while they are
loaded, and all datasets of a code location in a run, before it refreshes one of them (D-228).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import dagster as dg

from deltafold.algebra.local_path import is_remote, plain
from deltafold.pipelines.catalogue import DeclarationError

if TYPE_CHECKING:
    from deltafold.dagster.dataset_step import Step
    from deltafold.pipelines.pipeline import Pipeline
    from deltafold.pipelines.project_files import ProjectFiles

    Owner = Pipeline | ProjectFiles

_ATTRIBUTE = "deltafold_folders"


class Folders:
    """The folders of the datasets of a code location. A project has one folder for all of its datasets."""

    def __init__(self, steps: Iterable[Step] = ()) -> None:
        self._owners: dict[str, list[tuple[Owner, dg.AssetKey]]] = {}
        for step in steps:
            self._add(step)

    def add(self, step: Step) -> None:
        """Add the folders of a step; raises DeclarationError if one of them has another dataset."""
        for owner, key in _list_owners(step):
            if fault := self.find_fault(owner, key):
                raise DeclarationError(fault)
        self._add(step)

    def find_fault(self, owner: Owner, key: dg.AssetKey) -> str | None:
        """Return why a dataset cannot be in its folder, with the fix; None if it can.

        The same pipeline under another key is no fault, since both assets have its rows.
        """
        folder = _find_folder(owner)
        for other, other_key in self._owners.get(folder, ()):
            if other != owner and other_key != key:
                return (
                    f"asset {key.to_user_string()}: asset {other_key.to_user_string()} is kept in the same folder, "
                    f"{folder}. Give one of them another `warehouse`, or another name: the option `name` of a "
                    "maintained view, the folder of a pipeline."
                )
        return None

    def _add(self, step: Step) -> None:
        for owner, key in _list_owners(step):
            self._owners.setdefault(_find_folder(owner), []).append((owner, key))


def _list_owners(step: Step) -> Iterator[tuple[Owner, dg.AssetKey]]:
    """Yield what has a folder, and the key of an asset in it."""
    yield from ((dataset.pipeline, dataset.key) for dataset in step.datasets)
    if step.project is not None and step.project.datasets:
        yield step.project.files, step.project.keys[next(iter(step.project.datasets))]


def _find_folder(owner: Owner) -> str:
    """Return the folder or URI of a dataset in one spelling, also where its path has links."""
    folder = owner.warehouse
    return folder if is_remote(folder) else os.path.realpath(plain(folder))


def folders_of_components(context: dg.ComponentLoadContext) -> Folders:
    """Return the folders of the components of a project that are loaded already."""
    # The tree of components is the one object that lives as long as they do; it has no weak references.
    return vars(context.component_tree).setdefault(_ATTRIBUTE, Folders())
