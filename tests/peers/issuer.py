"""A CI system that signs tokens for its jobs, as GitHub does: OpenID configuration, keys, and a token on request.

    issuer.py FOLDER

FOLDER/claims.json has the claims of the job. Who asks for a token shows FOLDER/secret. Prints its port, and ends when its stdin does.
"""
import base64
import http.server
import json
import pathlib
import sys
import threading
import time
import urllib.parse
import uuid

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

folder = pathlib.Path(sys.argv[1])
key = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def part(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def number(value):
    return part(value.to_bytes((value.bit_length() + 7) // 8, "big"))


def signed(claims):
    head = {"typ": "JWT", "alg": "RS256", "kid": "one"}
    text = ".".join(part(json.dumps(value).encode()) for value in (head, claims))
    return text + "." + part(key.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256()))


class Issuer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        address = f"http://127.0.0.1:{self.server.server_port}"
        asked = urllib.parse.urlsplit(self.path)
        if asked.path == "/.well-known/openid-configuration":
            return self.say(200, {"issuer": address, "jwks_uri": f"{address}/keys"})
        if asked.path == "/keys":
            public = key.public_key().public_numbers()
            entry = {"kty": "RSA", "alg": "RS256", "use": "sig", "kid": "one", "n": number(public.n), "e": number(public.e)}
            return self.say(200, {"keys": [entry]})
        if asked.path == "/token":
            if self.headers["Authorization"] != "Bearer " + (folder / "secret").read_text():
                return self.say(403, {"message": "no such job"})
            now = int(time.time())
            claims = json.loads((folder / "claims.json").read_text())
            claims |= {"iss": address, "aud": urllib.parse.parse_qs(asked.query)["audience"][0], "jti": str(uuid.uuid4())}
            return self.say(200, {"value": signed(claims | {"iat": now, "nbf": now - 300, "exp": now + 300})})
        self.say(404, {})

    def say(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Issuer)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(server.server_port, flush=True)
sys.stdin.read()
