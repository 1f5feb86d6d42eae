"""Certificates for tests: an authority, and ends that it signs."""

from __future__ import annotations

import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


class Authority:
    """Signs certificates; everything is written to one directory as PEM.

    Args:
        directory: where files go.
        name: of the authority.
    """

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self._directory = directory
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        self._key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._builder(self._name, self._key, 30).add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        self.trust_path = directory / f"{name}.pem"
        signed = certificate.sign(self._key, hashes.SHA256())
        self.trust_path.write_bytes(signed.public_bytes(serialization.Encoding.PEM))

    def make(self, name: str, *, days: int = 7, password: str = "") -> tuple[Path, Path]:
        """A certificate and its key; those of the same name before are replaced.

        Args:
            name: of the end, and of the files.
            days: until it ends.
            password: of the key file; empty for none.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        certificate = self._builder(subject, key, days).sign(self._key, hashes.SHA256())
        cert_path, key_path = self._directory / f"{name}.pem", self._directory / f"{name}.key"
        encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password:
            encryption = serialization.BestAvailableEncryption(password.encode())
        key_path.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
            )
        )
        cert_path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        return cert_path, key_path

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, days: int
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=days))
        )


def tls_properties(
    authority: Authority, name: str = "server", *, mode: str = "enforcing", mutual: bool = False
) -> dict[str, str]:
    """The ``tls.*`` keys of a process that is given a certificate, and checks those of others.

    Args:
        authority: signs it.
        name: of the certificate.
        mode: ``tls.server.mode``.
        mutual: clients must show a certificate too.
    """
    cert_path, key_path = authority.make(name)
    found = {
        "tls.enable": "true",
        "tls.server.mode": mode,
        "tls.server.certPath": str(cert_path),
        "tls.server.keyPath": str(key_path),
        "tls.client.authServer": "true",
        "tls.client.trustCertPath": str(authority.trust_path),
        "tls.client.certPath": str(cert_path),
        "tls.client.keyPath": str(key_path),
    }
    if mutual:
        found |= {
            "tls.server.authClient": "true",
            "tls.server.need.client.auth": "require",
            "tls.server.trustCertPath": str(authority.trust_path),
        }
    return found
