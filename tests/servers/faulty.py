"""A tool server with one fault, named on its command line; it speaks the protocol by hand."""

import json
import sys
import time

FAULT = sys.argv[1]
TOOL = {"name": "go", "description": "Goes.", "inputSchema": {"type": "object", "properties": {}}}


def send(message):
    print(json.dumps(message), flush=True)


def answer(request_id, result):
    send({"jsonrpc": "2.0", "id": request_id, "result": result})


def call(request_id):
    if FAULT == "hangs":
        time.sleep(3600)
    elif FAULT == "garbage":
        print("Traceback: <oops>", flush=True)
    elif FAULT == "wrong id":
        answer(request_id + 1000, {"content": [{"type": "text", "text": "done"}]})
    elif FAULT == "huge":
        answer(request_id, {"content": [{"type": "text", "text": "x" * 12_000_000}]})
    elif FAULT == "no list":
        answer(request_id, {"content": "nope"})
    elif FAULT == "noise first":
        print("Traceback: <oops>", flush=True)
        answer(request_id, {"content": [{"type": "text", "text": "done"}]})
    # "slow": this one call is never answered, everything else is


for line in sys.stdin:
    request = json.loads(line)
    method, request_id = request.get("method"), request.get("id")
    if method == "initialize":
        version = request["params"]["protocolVersion"]
        server = {"name": "faulty", "version": "1"}
        answer(request_id, {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server})
    elif method == "tools/list":
        answer(request_id, {"tools": [TOOL]})
    elif method == "tools/call":
        call(request_id)
    elif request_id is not None:
        send({"jsonrpc": "2.0", "id": request_id, "error": {"code": -32601, "message": "no such method"}})
