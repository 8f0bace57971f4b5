"""Uploads runs to servers at a steady rate while pages are read, and tells how long both took.

    load.py --server URL… --token TOKEN… --rate 1000 --seconds 600 --tests 500 --log FILE [--stop FILE]

One token per project, `load0`, `load1` and so on, which may write `main`. A quarter of the runs are of `main`: a commit
after the other, of which neighbours arrive in any order; the others are reviews. Every hundredth test leaks; a leak
comes, goes and returns. Each upload has a time at which it is due, and its latency counts from then: a server that falls
behind is seen to. The log gets the session of each run that was accepted. It ends early when the file of `--stop` is there.
"""
import argparse
import datetime
import gzip
import hashlib
import http.client
import json
import os
import queue
import random
import threading
import time
import urllib.parse

MARK = "@@SESSION@@"
PAGES = ["", "/leaks", "/runs", "/tests/engine/Map.test7", "/tune"]


def figure(value):
    return {"value": value, "unit": "bytes", "per": "iteration", "low": value, "high": value, "iterations": 9,
            "confidence": 0.99, "threshold": None}


def leak(number):
    frame = {"function": "tiles::load()", "file": "src/tiles.cc", "line": 7, "module": "t", "offset": 1, "inlined": False}
    return {"id": f"n1-{number:016}", "kind": "native", "title": "1 × 7 B", "bytes_per_iteration": 7.0,
            "count_per_iteration": 1.0, "frames": [frame] * 24, "holder": []}


def test(number, odd):
    leaks = number % 100 == 7 or (odd and number == 11)
    return {"id": f"Map.test{number}", "outcome": "passed", "verdict": "fail" if leaks else "pass", "reason": "",
            "duration_s": round(random.uniform(0.01, 0.2), 4), "confirmed": leaks,
            "metrics": {"native.live_bytes": figure(7.0 if leaks else 0.0), "native.live_allocations": figure(1.0 if leaks else 0.0)},
            "leaks": [leak(number)] if leaks else [], "one_time": [], "curve": []}


class Load:
    def __init__(self, asked):
        self.asked, self.due = asked, queue.Queue()
        self.lock, self.uploads, self.pages, self.refused = threading.Lock(), [], [], []
        self.log = open(asked.log, "a", encoding="utf-8")
        self.reports = {}
        for odd in (False, True):
            report = {"schema_version": 1, "verdict": "fail", "exit_code": 1, "project": MARK, "session": MARK, "started": MARK,
                      "duration_s": 1.5, "agent_cost": {"cpu_ratio": None, "peak_bytes": 0, "boundary_s": 0.0, "truncated_stacks": 0},
                      "waivers": [], "errors": [],
                      "suites": [{"name": "engine", "runner": "gtest", "boundary": "exact", "verdict": "fail", "screened_s": 1.0,
                                  "reason": "", "metrics": {}, "tests": [test(number, odd) for number in range(asked.tests)]}]}
            self.reports[odd] = json.dumps(report, ensure_ascii=False)
        self.base = random.randrange(1 << 40) << 40

    def sha(self, project, place):
        return hashlib.sha1(f"{self.base}-{project}-{place}".encode()).hexdigest()

    def body(self, number):
        """Run `number`: its project, its session, its bytes."""
        own = number // len(self.asked.token)
        project = number % len(self.asked.token)
        session = f"s{self.base:x}-{number}"
        place = own // 4
        ancestors = [self.sha(project, place - 1 - back) for back in range(min(place, 100))]
        commit = {"sha": self.sha(project, place), "branch": "main", "target": "", "base_sha": ""}
        if own % 4:
            review = f"{place}.{own % 4}"
            commit = {"sha": self.sha(project, "review " + review), "branch": f"fix-{review}", "target": "main",
                      "base_sha": self.sha(project, place)}
        manifest = {"project": f"load{project}", "session": session, "commit": commit, "ancestors": ancestors,
                    "ci": {"provider": "gitlab", "pipeline": f"{self.base:x}-{own}", "number": str(own), "job": "test", "attempt": "1", "url": ""},
                    "environment": {"architecture": "x86_64"}, "lines": ["main"]}
        now = datetime.datetime.now(datetime.timezone.utc).isoformat().replace("+00:00", "Z")
        report = self.reports[place // 40 % 2 == 1]
        for value in (manifest["project"], session, now):
            report = report.replace(MARK, value, 1)
        return project, session, gzip.compress(f'{{"manifest":{json.dumps(manifest)},"report":{report}}}'.encode(), 1)

    def send(self, connections, server, method, path, **rest):
        """The status, which is 0 where nobody answers."""
        try:
            if connections.get(server) is None:
                at = urllib.parse.urlsplit(server)
                connections[server] = http.client.HTTPConnection(at.hostname, at.port, timeout=30)
            connections[server].request(method, path, **rest)
            answer = connections[server].getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException):
            connections[server] = None
            return 0, b""

    def writer(self):
        connections = {}
        while (one := self.due.get()) is not None:
            due, number = one
            project, session, body = self.body(number)
            headers = {"Authorization": f"Bearer {self.asked.token[project]}", "Content-Type": "application/json",
                       "Content-Encoding": "gzip"}
            tries = number
            while True:
                server = self.asked.server[tries % len(self.asked.server)]
                status, answer = self.send(connections, server, "POST", f"/api/v1/projects/load{project}/runs", body=body, headers=headers)
                if status in (200, 201):
                    with self.lock:
                        self.uploads.append(time.monotonic() - due)
                        self.log.write(session + "\n")
                        self.log.flush()
                    break
                if status not in (0, 408, 429) and status < 500:
                    with self.lock:
                        self.refused.append(f"{status} {answer[:300]!r}")
                    break
                if time.monotonic() - due > 120:
                    with self.lock:
                        self.refused.append(f"{session} was not accepted in two minutes: {status}")
                    break
                tries += 1
                time.sleep(0.2)

    def reader(self, until):
        connections, number = {}, 0
        begun = time.monotonic()
        while time.monotonic() < until and not self.stopped():
            due = begun + number / self.asked.pages
            time.sleep(max(0.0, due - time.monotonic()))
            page = f"/p/load{number % len(self.asked.token)}{PAGES[number % len(PAGES)]}"
            status, _ = self.send(connections, self.asked.server[number % len(self.asked.server)], "GET", page)
            if status == 200:
                self.pages.append(time.monotonic() - due)
            number += 1

    def stopped(self):
        return self.asked.stop and os.path.exists(self.asked.stop)

    def run(self):
        writers = [threading.Thread(target=self.writer) for _ in range(self.asked.writers)]
        begun = time.monotonic()
        reader = threading.Thread(target=self.reader, args=(begun + self.asked.seconds,))
        for one in [*writers, reader]:
            one.start()
        order = list(range(int(self.asked.rate * self.asked.seconds / 60)))
        # Neighbouring runs arrive in any order.
        order.sort(key=lambda number: number + random.uniform(0, 8 * len(self.asked.token)))
        for place, number in enumerate(order):
            due = begun + place * 60 / self.asked.rate
            time.sleep(max(0.0, due - time.monotonic()))
            if self.stopped():
                break
            self.due.put((due, number))
        for _ in writers:
            self.due.put(None)
        for one in [*writers, reader]:
            one.join()
        return time.monotonic() - begun


def quantiles(taken):
    taken = sorted(1e3 * one for one in taken) or [0.0]
    at = lambda part: taken[min(len(taken) - 1, int(part * len(taken)))]
    return f"median {at(0.5):.0f} ms, p99 {at(0.99):.0f} ms, longest {taken[-1]:.0f} ms ({len(taken)})"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", action="append", required=True)
    parser.add_argument("--token", action="append", required=True)
    parser.add_argument("--rate", type=float, required=True, help="runs a minute")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--tests", type=int, default=500)
    parser.add_argument("--pages", type=float, default=4.0, help="pages a second")
    parser.add_argument("--writers", type=int, default=16)
    parser.add_argument("--log", required=True)
    parser.add_argument("--stop")
    load = Load(parser.parse_args())
    took = load.run()
    print(f"{len(load.uploads) * 60 / took:.0f} runs of {load.asked.tests} tests a minute; uploads: {quantiles(load.uploads)}; "
          f"pages: {quantiles(load.pages)}")
    for line in load.refused[:3]:
        print(f"refused: {line}")
    raise SystemExit(1 if load.refused else 0)


main()
