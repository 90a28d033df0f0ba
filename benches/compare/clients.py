"""The contenders in Python. Prints the seconds of the work alone, without start and imports, then a count.

    clients.py each      FEED OUT_DIR PORT   a SET a record
    clients.py pipelined FEED OUT_DIR PORT   SETs in pipelines of 1,000
    clients.py first     FEED OUT_DIR        DuckDB: the first of equal rows, in the file's order; nothing stored
    clients.py distinct  FEED OUT_DIR        DuckDB: distinct rows in any order; nothing stored

The first two do what the program does, as a team would first write it: canonical form, SHA-256, claim, a file of
records a decision, an audit line a record. The count is of duplicates; of the others, of rows.
"""

import csv
import decimal
import hashlib
import json
import os
import sys
import time

FIELDS = ("account_id", "bank_txn_id", "amount", "currency", "posted_at")
BATCH = 1000
TTL_SECONDS = 220924800


def source_hash(record):
    fields = dict(zip(FIELDS, record))
    fields["amount"] = f"{decimal.Decimal(fields['amount']):.2f}"
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def batches(reader, size):
    batch = []
    for record in reader:
        batch.append(record)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


def claim_each(client, claims):
    return [client.set(key, marker, nx=True, get=True, ex=TTL_SECONDS) for key, marker in claims]


def claim_pipelined(client, claims):
    pipe = client.pipeline(transaction=False)
    for key, marker in claims:
        pipe.set(key, marker, nx=True, get=True, ex=TTL_SECONDS)
    return pipe.execute()


def ingest(feed, out_dir, port, claim):
    import redis

    client = redis.Redis(port=int(port))
    now = "2026-07-15T09:03:00+00:00"
    run = "r-" + "1" * 32
    row = duplicates = 0
    start = time.perf_counter()
    with (
        open(feed, newline="") as source,
        open(os.path.join(out_dir, "accepted.csv"), "w", newline="") as accepted,
        open(os.path.join(out_dir, "suppressed.csv"), "w", newline="") as suppressed,
        open(os.path.join(out_dir, "audit.jsonl"), "w") as audit,
    ):
        reader = csv.reader(source)
        next(reader)
        writers = [csv.writer(accepted, lineterminator="\n"), csv.writer(suppressed, lineterminator="\n")]
        for writer in writers:
            writer.writerow(FIELDS)
        for batch in batches(reader, BATCH):
            hashes = [source_hash(record) for record in batch]
            claims = [(f"dedup:bankfeed:{h}", f"{run}:{row + i}|{now}|1") for i, h in enumerate(hashes, 1)]
            for record, digest, found in zip(batch, hashes, claim(client, claims)):
                row += 1
                duplicates += found is not None
                writers[found is not None].writerow(record)
                line = {"ts": now, "event": "dedup.checked", "trace_id": f"{run}:{row}", "source_hash": digest}
                line["match_decision"] = "ACCEPTED" if found is None else "DUPLICATE_SUPPRESSED"
                audit.write(json.dumps(line) + "\n")
        for file in (accepted, suppressed, audit):
            file.flush()
            os.fsync(file.fileno())
    return time.perf_counter() - start, duplicates


# What an accepted file holds: the first of each, in the order of the feed.
FIRST_IN_ORDER = (
    "SELECT * EXCLUDE (place, nth) FROM (SELECT *, row_number() OVER"
    f" (PARTITION BY {', '.join(FIELDS)} ORDER BY place) AS nth"
    " FROM (SELECT *, row_number() OVER () AS place FROM {rows})) WHERE nth = 1 ORDER BY place"
)
IN_ANY_ORDER = "SELECT DISTINCT * FROM {rows}"


def sort_out(query, feed, out_dir):
    import duckdb

    out = os.path.join(out_dir, "distinct.csv")
    start = time.perf_counter()
    database = duckdb.connect()
    rows = f"read_csv('{feed}', header = true, all_varchar = true)"
    (count,) = database.execute(
        f"COPY ({query.format(rows=rows)}) TO '{out}' (FORMAT csv, HEADER)"
    ).fetchone()
    return time.perf_counter() - start, count


if __name__ == "__main__":
    mode, arguments = sys.argv[1], sys.argv[2:]
    if mode in ("first", "distinct"):
        seconds, count = sort_out({"first": FIRST_IN_ORDER, "distinct": IN_ANY_ORDER}[mode], *arguments)
    else:
        seconds, count = ingest(*arguments, claim={"each": claim_each, "pipelined": claim_pipelined}[mode])
    print(seconds, count)
