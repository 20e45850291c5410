"""Recognise passwords and keys in settings and addresses, and mask them in texts (D-029)."""

from __future__ import annotations

import re

# fs.s3a.secret.key, fs.s3a.access.key, fs.azure.account.key.….net, fs.azure.sas.…, spark.ssl.keyPassword
SECRET_NAME = re.compile(
    r"secret|passw|passphrase|token|(access|account|private|api|encryption)[._-]?key|[._]sas[._]", re.I
)
SECRET_VALUE = re.compile(r"((?:secret|passw\w*|token|access[._-]?key)[\w.]*\s*[=:]\s*)[^\s,;]+", re.I)
ADDRESS = re.compile(r"(://)[^/\s@]*:[^/\s@]*@")
# the signature of an address that grants access by itself: Azure's SAS, presigned URLs of S3 and Google
SIGNATURE = re.compile(r"([?&](?:sig|x-amz-signature|x-amz-credential|x-goog-signature)=)[^&\s]+", re.I)
INSTEAD = (
    "Remove it: Spark takes it from the environment (such as AWS_SECRET_ACCESS_KEY) "
    "or from a core-site.xml in $HADOOP_CONF_DIR"
)


def is_secret(setting: str, value: str = "") -> bool:
    """Return whether a setting, judged by its name and value, contains a password or a key."""
    return bool(SECRET_NAME.search(setting)) or mask_secrets(value) != value


def has_password(address: str) -> bool:
    """Return whether an address grants access: s3a://user:password@bucket, or a signature (…?sig=…)."""
    return bool(ADDRESS.search(address) or SIGNATURE.search(address))


def mask_secrets(text: str) -> str:
    """Return the text with every recognisable secret replaced by an ellipsis."""
    return SECRET_VALUE.sub(r"\1…", SIGNATURE.sub(r"\1…", ADDRESS.sub(r"\1…@", text)))
