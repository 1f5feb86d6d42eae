"""Certificates: when they end, and one that is made for tests (``tls.test.mode.enable``)."""

from __future__ import annotations

import contextlib
import datetime
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rmqha.base.errors import ConfigInvalid

TEST_NAME = "rmqha-test-mode"
TEST_DAYS = 365


def expires_ms(path: str) -> int:
    """When the first certificate of a PEM file ends, in milliseconds since 1970.

    Raises:
        ConfigInvalid: there is none.
    """
    # Only processes that speak TLS pay for the import.
    from cryptography import x509

    try:
        found = x509.load_pem_x509_certificates(Path(path).read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigInvalid(f"{path}: {error}") from error
    return int(found[0].not_valid_after_utc.timestamp() * 1000)


@contextlib.contextmanager
def self_signed() -> Iterator[tuple[str, str]]:
    """A certificate and its key, in files that only this user can read and that are gone after."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, TEST_NAME)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=TEST_DAYS))
        .sign(key, hashes.SHA256())
    )
    with tempfile.TemporaryDirectory() as directory:
        cert_path, key_path = os.path.join(directory, "cert"), os.path.join(directory, "key")
        Path(cert_path).write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        Path(key_path).write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        yield cert_path, key_path
