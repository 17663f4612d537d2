"""The batch APIs of OpenAI, Anthropic and Google over a model that repeats the last message; prints its port.

A question with "wrong" in it is refused, one with "late" expires, and a batch takes three looks. `GET /log` tells what
was asked.
"""

import asyncio
import json
from itertools import count

from aiohttp import web

FILES, BATCHES, LOG, NUMBERS = {}, {}, [], count(1)
LOOKS = 3


def last_text(messages):
    content = messages[-1]["content"]
    return content if isinstance(content, str) else content[-1].get("text", "")


def new_id(kind):
    return f"{kind}_{next(NUMBERS)}"


async def upload(request):
    form = await request.post()
    assert form["purpose"] == "batch"
    name = new_id("file")
    FILES[name] = form["file"].file.read()
    return web.json_response({"id": name, "object": "file", "purpose": "batch"})


async def content(request):
    return web.Response(body=FILES[request.match_info["id"]])


async def create_openai(request):
    order = await request.json()
    if "input_file_id" not in order:
        return web.json_response({"error": {"message": "no file", "type": "invalid_request_error"}}, status=400)
    lines = [json.loads(line) for line in FILES[order["input_file_id"]].splitlines()]
    assert all(line["url"] == order["endpoint"] for line in lines)
    if any("broken" in last_text(line["body"]["messages"]) for line in lines):
        BATCHES[name := new_id("batch")] = {"looks": 0, "lines": None}
    else:
        BATCHES[name := new_id("batch")] = {"looks": 0, "lines": lines}
    LOG.append({"openai": len(lines)})
    return web.json_response({"id": name, "status": "validating"})


async def look_openai(request):
    batch = BATCHES[request.match_info["id"]]
    batch["looks"] += 1
    state = {"id": request.match_info["id"], "status": "in_progress"}
    if batch["looks"] < LOOKS:
        return web.json_response(state)
    if batch["lines"] is None:
        errors = {"data": [{"code": "invalid_json_line", "message": "line 1"}]}
        return web.json_response(state | {"status": "failed", "errors": errors})
    good, bad = [], []
    for line in reversed(batch["lines"]):  # the order is not that of the requests
        text = last_text(line["body"]["messages"])
        out = {"id": new_id("req"), "custom_id": line["custom_id"], "response": None, "error": None}
        if "late" in text:
            bad.append(out | {"error": {"code": "batch_expired", "message": "expired"}})
        elif "wrong" in text:
            body = {"error": {"message": "not allowed", "type": "invalid_request_error"}}
            bad.append(out | {"response": {"status_code": 400, "body": body}})
        else:
            message = {"role": "assistant", "content": f"heard {text}"}
            body = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": {}}
            good.append(out | {"response": {"status_code": 200, "body": body}})
    files = {}
    for name, lines in (("output_file_id", good), ("error_file_id", bad)):
        if lines:
            FILES[files.setdefault(name, new_id("file"))] = "\n".join(map(json.dumps, lines)).encode()
    return web.json_response(state | {"status": "completed", **files})


async def create_anthropic(request):
    assert request.headers["anthropic-version"]
    requests = (await request.json())["requests"]
    BATCHES[name := new_id("msgbatch")] = {"looks": 0, "requests": requests}
    LOG.append({"anthropic": len(requests)})
    return web.json_response({"id": name, "type": "message_batch", "processing_status": "in_progress"})


async def look_anthropic(request):
    batch = BATCHES[request.match_info["id"]]
    batch["looks"] += 1
    status = "ended" if batch["looks"] >= LOOKS else "in_progress"
    url = "http://another.invalid/results"  # the key must not go there
    return web.json_response({"id": request.match_info["id"], "processing_status": status, "results_url": url})


async def results_anthropic(request):
    lines = []
    for one in reversed(BATCHES[request.match_info["id"]]["requests"]):
        text = last_text(one["params"]["messages"])
        if "late" in text:
            result = {"type": "expired"}
        elif "wrong" in text:
            error = {"type": "error", "error": {"type": "invalid_request_error", "message": "not allowed"}}
            result = {"type": "errored", "error": error}
        else:
            blocks = [{"type": "text", "text": f"heard {text}"}]
            message = {"type": "message", "role": "assistant", "content": blocks, "stop_reason": "end_turn"}
            message["usage"] = {"input_tokens": 1, "output_tokens": 1}
            result = {"type": "succeeded", "message": message}
        lines.append(json.dumps({"custom_id": one["custom_id"], "result": result}))
    return web.Response(text="\n".join(lines))


async def create_google(request):
    model, _, verb = request.match_info["verb"].partition(":")
    assert (model, verb, request.headers["x-goog-api-key"]) == ("m", "batchGenerateContent", "k")
    requests = (await request.json())["batch"]["inputConfig"]["requests"]["requests"]
    BATCHES[name := new_id("b")] = {"looks": 0, "requests": requests}
    LOG.append({"google": len(requests)})
    return web.json_response({"name": f"batches/{name}", "metadata": {"state": "BATCH_STATE_PENDING"}})


async def look_google(request):
    name = request.match_info["id"]
    batch = BATCHES[name]
    batch["looks"] += 1
    if batch["looks"] < LOOKS:
        return web.json_response({"name": f"batches/{name}", "metadata": {"state": "BATCH_STATE_RUNNING"}})
    items = []
    for one in batch["requests"]:
        text = one["request"]["contents"][-1]["parts"][-1]["text"]
        if "late" in text:
            items.append({"error": {"code": 4, "message": "expired"}})
        elif "wrong" in text:
            items.append({"error": {"code": 3, "message": "not allowed"}})
        elif "short" not in text:
            content = {"role": "model", "parts": [{"text": f"heard {text}"}]}
            usage = {"promptTokenCount": 1, "candidatesTokenCount": 1}
            candidates = [{"content": content, "finishReason": "STOP"}]
            items.append({"response": {"candidates": candidates, "usageMetadata": usage}})
    output = {"inlinedResponses": {"inlinedResponses": items}}
    state = {"name": f"batches/{name}", "done": True, "metadata": {"state": "BATCH_STATE_SUCCEEDED"}}
    return web.json_response(state | {"response": output})


async def cancel_google(request):
    LOG.append({"cancelled": request.match_info["id"]})
    return web.json_response({})


async def cancel(request):
    LOG.append({"cancelled": request.match_info["id"]})
    return web.json_response({"id": request.match_info["id"], "status": "cancelling", "processing_status": "canceling"})


async def log(request):
    return web.json_response(LOG)


async def serve():
    app = web.Application(client_max_size=2**26)
    app.add_routes(
        [
            web.post("/v1/files", upload),
            web.get("/v1/files/{id}/content", content),
            web.post("/v1/batches", create_openai),
            web.get("/v1/batches/{id}", look_openai),
            web.post("/v1/batches/{id}/cancel", cancel),
            web.post("/v1/messages/batches", create_anthropic),
            web.get("/v1/messages/batches/{id}", look_anthropic),
            web.get("/v1/messages/batches/{id}/results", results_anthropic),
            web.post("/v1/messages/batches/{id}/cancel", cancel),
            web.post(r"/v1beta/models/{verb}", create_google),
            web.get(r"/v1beta/batches/{id:\w+}", look_google),
            web.post(r"/v1beta/batches/{id:\w+}:cancel", cancel_google),
            web.get("/log", log),
        ]
    )
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


asyncio.run(serve())
