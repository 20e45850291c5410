"""Try whether a store refuses the second of two writers, instead of trusting its scheme.

Two writes in a row cannot show a log store that looks first and writes then, as Delta's own ones do on S3: these are
known by their names.
"""

from __future__ import annotations

from uuid import uuid4

from deltafold.algebra.errors import SourceError, StorageError
from deltafold.lake.remote import objects
from deltafold.lake.remote.remote_path import RemotePath
from deltafold.spark.jvm.object_stores import S3_SCHEMES, UNSAFE_ON_S3

CHECKED = set[str]()  # the roots that this process has tried


def check_store(root: RemotePath) -> None:
    """Write an object below a root twice, as two processes would; the second must be refused.

    Raises StorageError for a store that does not answer, and SourceError for one that lets both write.
    """
    if root.address in CHECKED:
        return
    trial = f"{root.address}/.trial-{uuid4().hex}"
    scheme = root.address.partition(":")[0]
    try:
        unsafe = scheme in S3_SCHEMES and objects.log_store_class(trial) in UNSAFE_ON_S3
        written = objects.put_if_absent(trial, "first"), objects.put_if_absent(trial, "second")
        objects.delete(trial)
    except StorageError as error:
        raise StorageError(str(error).replace(trial, root.address)) from error
    if unsafe or written != (True, False):
        raise SourceError(
            f"warehouse {root}: two processes could both commit the same version there, so answers could be lost. "
            f"Set spark.delta.logStore.{scheme}.impl to a log store that refuses the second one, or start Spark with "
            f"spark.deltafold.stores: {scheme}, if that is s3a."
        )
    CHECKED.add(root.address)
