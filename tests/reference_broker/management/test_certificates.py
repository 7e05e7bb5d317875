"""The end of a certificate, out of its file."""

from __future__ import annotations

import ssl
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from reference_broker.management.certificates import end_of
from tests.perftest.testing.certificates import Authority


def test_the_end_is_the_one_that_openssl_reads(tmp_path: Path) -> None:
    certificate, _key = Authority(tmp_path).issue("127.0.0.1")
    command = ("openssl", "x509", "-noout", "-enddate", "-in", str(certificate))
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    seconds = ssl.cert_time_to_seconds(said.strip().partition("=")[2])
    assert end_of(certificate) == datetime.fromtimestamp(seconds, UTC)


@pytest.mark.parametrize("octets", [b"", b"\x30\x03\x30\x01\xa0", b"\x30"])
def test_what_is_no_certificate_is_told(tmp_path: Path, octets: bytes) -> None:
    file = tmp_path / "wrong.pem"
    file.write_text(ssl.DER_cert_to_PEM_cert(octets) if octets else "no certificate")
    with pytest.raises(ValueError, match=r"certificate|PEM"):
        end_of(file)
