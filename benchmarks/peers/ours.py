"""This project: engine, endpoint and store, as in `benchmarks.bars_endpoint`."""

from __future__ import annotations

from benchmarks.bars_endpoint import ours
from benchmarks.peers.rounds import serve

if __name__ == "__main__":
    serve(lambda url, turns, concurrency: ours(url, turns))
