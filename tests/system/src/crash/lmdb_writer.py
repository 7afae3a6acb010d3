"""Writes to an LMDB database until its file system is gone, and says the number of each transaction once it is durable.

Transaction N puts the record N and the slot N modulo SLOTS, and deletes the record N - RECORDS: what is there follows
from the number of the last one (lmdb.rs).
"""

import sys

import lmdb

RECORDS = 300
SLOTS = 97
MAP_BYTES = 32 << 20


def value(number):
    unit = b"%d." % number
    length = number * 7919 % 9001 + 1
    return (unit * (length // len(unit) + 1))[:length]


def main():
    path, number, kind, care = sys.argv[1:]
    number = int(number)
    environment = lmdb.open(path, map_size=MAP_BYTES, writemap=kind == "mapped", sync=care == "careful")
    while True:
        with environment.begin(write=True) as transaction:
            transaction.put(b"record%010d" % number, value(number))
            transaction.put(b"slot%03d" % (number % SLOTS), value(number))
            if number > RECORDS:
                transaction.delete(b"record%010d" % (number - RECORDS))
        print(number, flush=True)
        number += 1


main()
