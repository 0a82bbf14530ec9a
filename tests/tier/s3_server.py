#!/usr/bin/env python3
"""An S3 server for tests, of the standard library alone: objects in memory, each request's signature verified.

usage: s3_server.py     at a free port of 127.0.0.1; prints the port, ends with its standard input

It reckons AWS Signature Version 4 by itself, from the documentation: access key AKIDEXAMPLE, secret key SECRETEXAMPLE, region
us-test-1, bucket "bucket"; a session token must be TOKEN. Beside S3's requests it takes POST with a JSON object, for tests:
    {"on": "GET", "times": 2, "do": "503"}   status with <Code>Fault</Code>; also: close, truncate, stall, flip, long, short, whole,
                                             garbage, chunked; "on": "LIST": also none, endless
The answer has what was done how often, and the names and lengths of what is there.
"""
import hashlib
import hmac
import http.server
import json
import socketserver
import sys
import threading
import urllib.parse
from xml.sax.saxutils import escape

ACCESS, SECRET, REGION, TOKEN, BUCKET = "AKIDEXAMPLE", "SECRETEXAMPLE", "us-test-1", "TOKEN", "bucket"
PAGE = 50


class World:
    def __init__(self):
        self.lock = threading.Lock()
        self.objects = {}
        self.fault = {}
        self.stats = {"GET": 0, "PUT": 0, "HEAD": 0, "DELETE": 0, "refused": 0, "unsigned": 0, "LIST": 0}


WORLD = World()


def sha(data):
    return hashlib.sha256(data).hexdigest()


def mac(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        pass

    def reply(self, status, body=b"", length=None):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def error(self, status, code):
        self.reply(status, f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>no</Message></Error>".encode())

    def why_not(self, body):
        """None when the signature is right, else S3's word for what is wrong."""
        header = self.headers.get("Authorization", "")
        if not header.startswith("AWS4-HMAC-SHA256 "):
            return "MissingSecurityHeader"
        fields = dict(part.strip().split("=", 1) for part in header[len("AWS4-HMAC-SHA256 "):].split(","))
        access, day, region, service, end = fields["Credential"].split("/")
        names = fields["SignedHeaders"].split(";")
        date = self.headers.get("x-amz-date", "")
        payload = self.headers.get("x-amz-content-sha256", "")
        if access != ACCESS:
            return "InvalidAccessKeyId"
        if (region, service, end) != (REGION, "s3", "aws4_request") or date[:8] != day:
            return "AuthorizationHeaderMalformed"
        if names != sorted(names) or "host" not in names:
            return "AuthorizationHeaderMalformed"
        for name in self.headers.keys():
            if name.lower().startswith("x-amz-") and name.lower() not in names:
                return "AccessDenied"
            if len(self.headers.get_all(name)) != 1:
                return "InvalidRequest"
        for name in names:
            if name not in self.headers:
                return "SignatureDoesNotMatch"
        if payload == "UNSIGNED-PAYLOAD":
            with WORLD.lock:
                WORLD.stats["unsigned"] += 1
        elif payload != sha(body):
            return "XAmzContentSHA256Mismatch"
        if self.headers.get("x-amz-security-token", TOKEN) != TOKEN:
            return "InvalidToken"
        signed = [f"{name}:{self.headers[name].strip()}" for name in names]
        pairs = urllib.parse.parse_qsl(self.query, keep_blank_values=True)
        query = "&".join(sorted(f"{urllib.parse.quote(name, '-._~')}={urllib.parse.quote(value, '-._~')}" for name, value in pairs))
        canonical = "\n".join([self.command, self.path.partition("?")[0], query] + signed + ["", ";".join(names), payload])
        scope = f"{day}/{REGION}/s3/aws4_request"
        to_sign = "\n".join(["AWS4-HMAC-SHA256", date, scope, sha(canonical.encode())])
        key = mac(mac(mac(mac(("AWS4" + SECRET).encode(), day), REGION), "s3"), "aws4_request")
        if hmac.new(key, to_sign.encode(), hashlib.sha256).hexdigest() != fields["Signature"]:
            return "SignatureDoesNotMatch"
        return None

    def take_fault(self):
        with WORLD.lock:
            fault = WORLD.fault
            if fault.get("on") == ("LIST" if self.query else self.command) and fault.get("times", 0) > 0:
                fault["times"] -= 1
                return fault["do"]
        return None

    def evil(self, fault, data):
        """An answer that is wrong. True: that was it."""
        if fault is None:
            return False
        if fault.isdigit():
            self.error(int(fault), "Fault")
        elif fault == "close":
            self.close_connection = True
        elif fault == "truncate":
            self.reply(200, data[:len(data) // 2], len(data))
            self.close_connection = True
        elif fault == "stall":
            self.reply(200, data[:10], len(data))
            self.rfile.read(1)
        elif fault == "flip":
            self.reply(200, data[:5000] + bytes([data[5000] ^ 1]) + data[5001:])
        elif fault == "long":
            self.reply(200, data + b"x")
        elif fault == "short":
            self.reply(200, data[:-1])
        elif fault == "garbage":
            self.wfile.write(b"\0\1\2 what is this\r\n\r\n" * 100)
            self.close_connection = True
        elif fault == "chunked":
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(data), data))
        elif fault == "whole":
            self.reply(200, data)
        elif fault == "none":
            self.reply(200, b"<html><body>not a list</body></html>")
        elif fault == "endless":
            self.reply(200, b"<ListBucketResult><IsTruncated>true</IsTruncated>"
                       b"<NextContinuationToken>again</NextContinuationToken></ListBucketResult>")
        return True

    def list_page(self):
        """ListObjectsV2: fewer keys at once than S3 gives, and tokens that need to be encoded."""
        asked = dict(urllib.parse.parse_qsl(self.query))
        if asked.get("list-type") != "2":
            return b""
        prefix, after = asked.get("prefix", ""), asked.get("continuation-token", "").removeprefix("+/=& <")
        with WORLD.lock:
            WORLD.stats["LIST"] += 1
            names = sorted(name[len(BUCKET) + 2:] for name in WORLD.objects)
        names = [name for name in names if name.startswith(prefix) and name > after]
        page, more = names[:PAGE], len(names) > PAGE
        out = ["<?xml version='1.0' encoding='UTF-8'?>\n<ListBucketResult xmlns='http://s3.amazonaws.com/doc/2006-03-01/'>",
               f"<Name>{BUCKET}</Name><Prefix>{prefix}</Prefix><KeyCount>{len(page)}</KeyCount><MaxKeys>{PAGE}</MaxKeys>"]
        for name in page:
            out.append(f"<Contents><Key>{escape(name)}</Key><Size>1</Size><StorageClass>STANDARD</StorageClass></Contents>")
        if more:
            out.append(f"<NextContinuationToken>{escape('+/=& <' + page[-1])}</NextContinuationToken>")
        out.append(f"<IsTruncated>{'true' if more else 'false'}</IsTruncated></ListBucketResult>\n")
        return "".join(out).encode()

    def answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self.query = self.path.partition("?")[2]
        wrong = self.why_not(body)
        with WORLD.lock:
            WORLD.stats[self.command] += 1
            WORLD.stats["refused"] += wrong is not None
            data = WORLD.objects.get(self.path)
        if wrong:
            return self.error(403, wrong)
        if not (self.path + "/").replace("?", "/").startswith(f"/{BUCKET}/"):
            return self.error(404, "NoSuchBucket")
        if self.query:
            return self.evil(self.take_fault(), b"") or self.reply(200, self.list_page())
        if self.evil(self.take_fault(), data or b"x" * 6000):
            return None
        with WORLD.lock:
            if self.command == "PUT":
                WORLD.objects[self.path] = body
            elif self.command == "DELETE":
                WORLD.objects.pop(self.path, None)
        if self.command == "PUT":
            return self.reply(200)
        if self.command == "DELETE":
            self.send_response(204)
            return self.end_headers()
        if data is None:
            return self.error(404, "NoSuchKey")
        if self.command == "GET" and self.headers.get("Range") == "bytes=0-4095":
            return self.reply(206, data[:4096]) if data else self.error(416, "InvalidRange")
        return self.reply(200, data)

    do_GET = do_PUT = do_HEAD = do_DELETE = answer

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with WORLD.lock:
            if "on" in asked:
                WORLD.fault = asked
            told = {"stats": WORLD.stats, "objects": {name: len(data) for name, data in WORLD.objects.items()}}
            body = json.dumps(told).encode()
        self.reply(200, body)


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request, client_address):
        """Clients that have gone: some tests close in the middle."""


def main():
    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_address[1], flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
