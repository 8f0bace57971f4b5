"""Plays the harness for one spool: player.py FOLDER SECONDS [CLASS]

Acknowledges each boundary of the first stream in FOLDER until the stream is closed, and with CLASS orders EXPLAIN for it once,
as soon as the stream has given it a number: an order that is given again begins again. The layout is that of
device-agent/wire/src/spool.rs and reply.rs. Ends with 1 if the stream was not closed in time, or if a class was asked
for and never ordered.
"""

import ctypes
import glob
import mmap
import struct
import sys
import time

STATE, COMMITTED, BOUNDARY, ACKNOWLEDGED, HARNESS, ORDERS, CLASSES, PAGE = 12, 16, 24, 28, 32, 36, 128, 4096
RECORDING, CLOSED, EXPLAIN, LIST, FUTEX, WAIT, WAKE = 1, 2, 4, 0x80, 202, 0, 1
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


class Stream:
    def __init__(self, path):
        self.path = path
        with open(path, "r+b") as file:
            self.page = mmap.mmap(file.fileno(), PAGE)
        self.base = ctypes.addressof(ctypes.c_char.from_buffer(self.page))

    def load(self, offset):
        return struct.unpack_from("<I", self.page, offset)[0]

    def store(self, offset, value):
        struct.pack_into("<I", self.page, offset, value & 0xFFFFFFFF)

    def futex(self, offset, operation, value):
        """Waits at most 20 ms: the end of a stream wakes nobody."""
        limit = (ctypes.c_long * 2)(0, 20_000_000) if operation == WAIT else None
        libc.syscall(FUTEX, ctypes.c_void_p(self.base + offset), operation, ctypes.c_uint32(value), limit, None, 0)

    def number(self, name):
        """The number of a class: it stands before its name and the length of that in a frame of classes."""
        with open(self.path, "rb") as file:
            data = file.read(struct.unpack_from("<Q", self.page, COMMITTED)[0])
        at = data.find(bytes([len(name)]) + name)
        if at < 1:
            return None
        at -= 1
        number = data[at]
        while data[at - 1] & 0x80:
            at -= 1
            number = number << 7 | data[at] & 0x7F
        return number


def play(folder, seconds, name):
    end, paths = time.monotonic() + seconds, []
    while not paths:
        if time.monotonic() > end:
            return "no stream appeared"
        paths = glob.glob(f"{glob.escape(folder)}/*.mgf")
        time.sleep(0.001)
    stream = Stream(paths[0])
    stream.store(HARNESS, 1)
    stream.futex(HARNESS, WAKE, 1 << 30)
    last = ordered = 0
    while time.monotonic() < end:
        boundary, state = stream.load(BOUNDARY), stream.load(STATE)
        if boundary != last:
            number = stream.number(name) if name and not ordered else None
            if number is not None:
                stream.store(CLASSES, 0)
                stream.store(CLASSES + 4, number)
                stream.store(CLASSES, boundary << 8 | LIST | 1)
                ordered += 1
            stream.store(ORDERS, boundary << 8 | (EXPLAIN if number is not None else 0))
            stream.store(ACKNOWLEDGED, boundary)
            stream.futex(ACKNOWLEDGED, WAKE, 1 << 30)
            last = boundary
        elif state != RECORDING:
            why = None if state == CLOSED else f"the stream ended in state {state}"
            return why or ("EXPLAIN was never ordered" if name and not ordered else None)
        else:
            stream.futex(BOUNDARY, WAIT, boundary)
    return f"the stream was not closed after {seconds} s; last boundary {last}"


failure = play(sys.argv[1], float(sys.argv[2]), (sys.argv[3] if len(sys.argv) > 3 else "").encode())
if failure:
    sys.exit(f"player: {failure}")
