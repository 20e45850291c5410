"""Algebra room: what must not be written down. In: names and values of settings, addresses. Out: whether they tell."""

from __future__ import annotations

import re

# fs.s3a.secret.key, fs.s3a.access.key, fs.azure.account.key.….net, fs.azure.sas.…, spark.ssl.keyPassword
NAME = re.compile(r"secret|passw|passphrase|token|(access|account|private|api|encryption)[._-]?key|[._]sas[._]", re.I)
VALUE = re.compile(r"((?:secret|passw\w*|token|access[._-]?key)[\w.]*\s*[=:]\s*)[^\s,;]+", re.I)
ADDRESS = re.compile(r"(://)[^/\s@]*:[^/\s@]*@")
INSTEAD = (
    "remove it: Spark takes it from the environment (such as AWS_SECRET_ACCESS_KEY) "
    "or from a core-site.xml in $HADOOP_CONF_DIR"
)


def is_secret(setting: str, value: str = "") -> bool:
    """Whether a setting of this name, or with this value, holds a password or a key, to judge by how it looks."""
    return bool(NAME.search(setting)) or covered(value) != value


def has_password(address: str) -> bool:
    """Whether an address says who, and with which password: s3a://who:password@bucket."""
    return bool(ADDRESS.search(address))


def covered(text: str) -> str:
    """A text with every secret that shows itself in it replaced."""
    return VALUE.sub(r"\1…", ADDRESS.sub(r"\1…@", text))
