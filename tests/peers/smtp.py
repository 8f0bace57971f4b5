"""A mail server for tests: aiosmtpd with a certificate of a CA made on the spot.

    smtp.py starttls|tls|selfsigned|silent|garbage|refuse|https FOLDER

selfsigned: with a certificate that is its own CA's, as `openssl req -x509` makes it. Writes ca.pem and every mail it accepts into FOLDER, prints its port, and ends when its stdin does.
"""
import asyncio
import datetime
import json
import pathlib
import ssl
import sys

import trustme
from aiosmtpd.smtp import SMTP, AuthResult, LoginPassword
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

mode, folder = sys.argv[1], pathlib.Path(sys.argv[2])


class Keep:
    count = 0

    async def handle_RCPT(self, server, session, envelope, address, options):
        if address.startswith("gone@"):
            return "550 5.1.1 no such user"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server, session, envelope):
        Keep.count += 1
        told = {"from": envelope.mail_from, "to": envelope.rcpt_tos, "login": bool(session.authenticated)}
        (folder / f"{Keep.count}.eml").write_bytes(envelope.original_content)
        (folder / f"{Keep.count}.json").write_text(json.dumps(told))
        return "250 kept"


def authenticate(server, session, envelope, mechanism, data):
    right = isinstance(data, LoginPassword) and data.login == b"ci@example.com" and data.password == b"hunter2 \xc3\xa4"
    if right:
        return AuthResult(success=True)
    # Like a server that repeats the password: no log may contain it.
    return AuthResult(success=False, handled=False, message=f"535 5.7.8 wrong: {data.password.decode(errors='replace')}")


async def odd(reader, writer):
    if mode == "silent":
        await asyncio.sleep(3600)
    if mode == "refuse":
        writer.write(b"554 go away\r\n")
    if mode == "garbage":
        writer.write(b"\x00\xff\x1b[31m HTTP/1.1 200 OK\r\n" * 100_000)
    await writer.drain()
    writer.close()


async def chat(reader, writer):
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
    (folder / "posted").write_bytes(await reader.readexactly(length))
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
    await writer.drain()
    writer.close()


def self_signed(context):
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.timezone.utc)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256()))
    pem = serialization.Encoding.PEM
    (folder / "ca.pem").write_bytes(certificate.public_bytes(pem))
    private = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (folder / "key.pem").write_bytes(key.private_bytes(pem, *private))
    context.load_cert_chain(folder / "ca.pem", folder / "key.pem")


async def main():
    loop = asyncio.get_running_loop()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if mode == "selfsigned":
        self_signed(context)
    else:
        ca = trustme.CA()
        ca.cert_pem.write_to_path(str(folder / "ca.pem"))
        ca.issue_cert("localhost", "127.0.0.1").configure_cert(context)
    if mode in ("starttls", "tls", "selfsigned"):
        starttls = mode == "starttls"
        make = lambda: SMTP(
            Keep(), hostname="localhost", loop=loop, authenticator=authenticate, auth_required=True,
            auth_require_tls=starttls, tls_context=context if starttls else None, require_starttls=starttls)
        server = await loop.create_server(make, "127.0.0.1", 0, ssl=None if starttls else context)
    elif mode == "https":
        server = await asyncio.start_server(chat, "127.0.0.1", 0, ssl=context)
    else:
        server = await asyncio.start_server(odd, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


asyncio.run(main())
