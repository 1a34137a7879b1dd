"""Certificates: three authorities, because three circles trust different things.

`ca` says who is who in Kubernetes; it can be asked for certificates through the API. Neither etcd nor the emulated
kubelets may believe it, or whoever gets a certificate from the API would read the store or any pod's log:
`etcd-ca` joins the API server and etcd, `kubelet-ca` the API server and the agent, and their keys are not kept.
The loopback interface is shared by all users of a machine, so every listener asks for a certificate.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALIDITY = datetime.timedelta(days=3650)
CLOCK_SKEW = datetime.timedelta(minutes=5)
LOCAL = ("127.0.0.1", "localhost")
API_SERVER = (
    *LOCAL,
    "10.96.0.1",  # the first address of the Service range belongs to the Service "kubernetes"
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)


@dataclass(frozen=True)
class Leaf:
    """A certificate to issue: `serves` are its addresses as a server, none for a pure client."""

    file: str
    authority: str
    common_name: str
    organization: str = ""
    serves: tuple[str, ...] = ()
    client: bool = True


LEAVES = (
    Leaf("etcd", "etcd-ca", "etcd", serves=LOCAL),  # also the client side of etcd's own gateway and peers
    Leaf("apiserver-etcd", "etcd-ca", "kube-apiserver"),
    Leaf("apiserver", "ca", "kube-apiserver", serves=API_SERVER, client=False),
    Leaf("apiserver-kubelet", "kubelet-ca", "kube-apiserver"),
    Leaf("agent-serving", "kubelet-ca", "xdeepserve-agent", serves=LOCAL, client=False),
    Leaf("kube-controller-manager-serving", "ca", "kube-controller-manager", serves=LOCAL, client=False),
    Leaf("kube-scheduler-serving", "ca", "kube-scheduler", serves=LOCAL, client=False),
    Leaf("kube-controller-manager", "ca", "system:kube-controller-manager"),
    Leaf("kube-scheduler", "ca", "system:kube-scheduler"),
    Leaf("agent", "ca", "system:xdeepserve-agent", "system:masters"),
    Leaf("admin", "ca", "xdeepserve-admin", "system:masters"),
)
SERVICE_ACCOUNT = "service-account"


@dataclass(frozen=True)
class Authority:
    """A certificate authority; its key lives in memory unless someone writes it down."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def ensure_pki(directory: Path) -> None:
    """Fill `directory` unless it is there; it appears whole, by one rename."""
    if directory.is_dir():
        return
    scratch = directory.with_name(f".{directory.name}.partial")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(mode=0o700)
    authorities = {name: make_authority(name) for name in ("ca", "etcd-ca", "kubelet-ca")}
    for name, authority in authorities.items():
        _write_certificate(scratch / f"{name}.crt", authority.certificate)
    _write_key(scratch / "ca.key", authorities["ca"].key)  # signs what the API approves
    for leaf in LEAVES:
        certificate, key = issue(authorities[leaf.authority], leaf)
        _write_certificate(scratch / f"{leaf.file}.crt", certificate)
        _write_key(scratch / f"{leaf.file}.key", key)
    _write_service_account_keys(scratch)
    scratch.rename(directory)


def make_authority(name: str) -> Authority:
    """A self-signed authority that may sign leaves only."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"xdeepserve-{name}")])
    builder = _builder(subject, subject, key.public_key())
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_key_usage(signs_certificates=True), critical=True)
    return Authority(builder.sign(key, hashes.SHA256()), key)


def issue(authority: Authority, leaf: Leaf) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """A certificate for `leaf` with a key of its own."""
    key = ec.generate_private_key(ec.SECP256R1())
    names = [x509.NameAttribute(NameOID.COMMON_NAME, leaf.common_name)]
    if leaf.organization:
        names.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, leaf.organization))
    builder = _builder(x509.Name(names), authority.certificate.subject, key.public_key())
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_key_usage(signs_certificates=False), critical=True)
    usages = [ExtendedKeyUsageOID.SERVER_AUTH] * bool(leaf.serves) + [ExtendedKeyUsageOID.CLIENT_AUTH] * leaf.client
    builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    builder = builder.add_extension(issuer, critical=False)
    if leaf.serves:
        addresses = x509.SubjectAlternativeName([_general_name(address) for address in leaf.serves])
        builder = builder.add_extension(addresses, critical=False)
    return builder.sign(authority.key, hashes.SHA256()), key


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + VALIDITY)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(address: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(address))
    except ValueError:
        return x509.DNSName(address)


def _write_service_account_keys(directory: Path) -> None:
    """The pair that signs and checks service accounts' tokens."""
    key = ec.generate_private_key(ec.SECP256R1())
    _write_key(directory / f"{SERVICE_ACCOUNT}.key", key)
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    _write(directory / f"{SERVICE_ACCOUNT}.pub", public, 0o644)


def _write_certificate(path: Path, certificate: x509.Certificate) -> None:
    _write(path, certificate.public_bytes(serialization.Encoding.PEM), 0o644)


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    _write(path, pem, 0o600)


def _write(path: Path, data: bytes, mode: int) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(data)
