"""Secrets are recognised in settings and addresses, and masked in texts."""

from __future__ import annotations

import pytest

from deltafold.algebra.errors import SourceError
from deltafold.algebra.secrets import is_secret, mask_secrets
from deltafold.algebra.sources import Delta


@pytest.mark.parametrize(
    "name",
    [
        "spark.hadoop.fs.s3a.secret.key", "spark.hadoop.fs.s3a.access.key", "spark.hadoop.fs.s3a.session.token",
        "spark.hadoop.fs.azure.account.key.me.dfs.core.windows.net", "spark.ssl.keyPassword",
        "spark.hadoop.javax.jdo.option.ConnectionPassword", "spark.executorEnv.AWS_SECRET_ACCESS_KEY",
        "spark.hadoop.fs.azure.sas.fixed.token.me", "spark.hadoop.fs.s3a.encryption.key",
    ],
)  # fmt: skip
def test_names_of_secrets(name: str) -> None:
    assert is_secret(name, "x")


@pytest.mark.parametrize(
    "name",
    [
        "spark.sql.shuffle.partitions", "spark.hadoop.fs.s3a.aws.credentials.provider", "spark.kerberos.keytab",
        "spark.hadoop.fs.s3a.endpoint", "spark.databricks.delta.snapshotPartitions", "spark.hadoop.fs.s3a.path.style",
    ],
)  # fmt: skip
def test_other_names(name: str) -> None:
    """Protects users from false alarms."""
    assert not is_secret(name, "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider")


SIGNED = "abfss://c@acc.dfs.core.windows.net/x?sv=2024&sig=hunter2"


@pytest.mark.parametrize(
    "text", ["s3a://me:hunter2@lake is gone", "secret.key=hunter2, say", "-Dx.password=hunter2", SIGNED]
)
def test_secrets_in_texts_are_masked(text: str) -> None:
    assert mask_secrets(text) != text and "hunter2" not in mask_secrets(text)
    assert (
        mask_secrets("the keys of s3a://lake: a token of rows; a key = 1")
        == "the keys of s3a://lake: a token of rows; a key = 1"
    )


@pytest.mark.parametrize("address", ["s3a://me:hunter2@lake/sales", SIGNED])
def test_an_address_with_a_password_is_refused(address: str) -> None:
    """Also one that carries a signature, which grants access to whoever reads it."""
    with pytest.raises(SourceError, match="contains a password") as raised:
        Delta(address)
    assert "hunter2" not in str(raised.value)
