"""Attempts of a hostile agent to get out of its box: each is a name and code that runs inside.

Code sets `through` to something true where it got what it should not; an OSError is a refusal. It knows the worst case:
the key, port and process of a neighbour's episode, and listeners of the machine.
"""

# ruff: noqa: E501 (code that runs inside, one attempt a line)

from __future__ import annotations

HARNESS = """
import ctypes, fcntl, json, os, resource, signal, socket, struct, subprocess, sys, time
K = json.loads(os.environ["KNOWN"])
OWN_KEY, URL = os.environ["OPENAI_API_KEY"], os.environ["OPENAI_BASE_URL"]
PORT = int(URL.split(":")[2].split("/")[0])
PROXY = int(os.environ["HTTPS_PROXY"].rsplit(":", 1)[1])
libc = ctypes.CDLL(None, use_errno=True)
BODY = json.dumps({"model": "m", "messages": [{"role": "user", "content": "stolen"}]}).encode()

def raw(data, port=PORT, host="127.0.0.1", seconds=1.0):
    with socket.create_connection((host, port), timeout=seconds) as s:
        s.sendall(data if isinstance(data, bytes) else data.encode("latin-1"))
        got = b""
        try:
            while more := s.recv(65536): got += more
        except OSError: pass
        return got

def request(*headers, path="/v1/chat/completions", method="POST", body=BODY, line=""):
    head = [line or f"{method} {path} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return ("\\r\\n".join(head) + "\\r\\n\\r\\n").encode("latin-1") + body

def answered(*headers, **options):
    return b" 200 OK" in raw(request(*headers, **options))

def own(body=BODY):
    return f"POST /v1/chat/completions HTTP/1.1\\r\\nHost: x\\r\\nAuthorization: Bearer {OWN_KEY}\\r\\n"

def stolen(*extra):
    head = f"POST /v1/chat/completions HTTP/1.1\\r\\nHost: x\\r\\nAuthorization: Bearer {K['key']}\\r\\n"
    return head.encode() + f"Content-Length: {len(BODY)}\\r\\n\\r\\n".encode() + BODY

def tunnel(target, *rest):
    answer = raw(f"CONNECT {target} HTTP/1.1\\r\\n\\r\\n" + "".join(rest), PROXY)
    return b" 200 " in answer

def plain(url, *headers, method="GET"):
    return raw("\\r\\n".join([f"{method} {url} HTTP/1.1", *headers, "", ""]), PROXY)

def reached(answer):
    return b"the machine's server" in answer

def failed(call):
    if call == -1: raise OSError(ctypes.get_errno(), "refused")
    return call
"""
RUN = """
verdicts = {}
for name, source in json.loads(sys.stdin.readline()).items():
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(8)
        scope = dict(globals(), through=None)
        try:
            exec(source, scope)
            verdict = f"THROUGH {scope['through']!r}" if scope["through"] else "refused"
        except OSError as error: verdict = "refused"
        except BaseException as error: verdict = f"BROKEN {error!r}"
        os.write(writer, verdict.encode())
        os._exit(0)
    os.close(writer)
    verdicts[name] = os.read(reader, 400).decode() or "refused"
    os.close(reader)
    os.waitpid(child, 0)
assert answered("Authorization: Bearer " + OWN_KEY), "its own key is good"
print(json.dumps(verdicts))
"""

DOOR = {
    "neighbour's key": "through = answered('Authorization: Bearer ' + K['key'])",
    "neighbour's key for responses": "through = answered('Authorization: Bearer ' + K['key'], path='/v1/responses')",
    "neighbour's key for models": (
        "through = answered('Authorization: Bearer ' + K['key'], path='/v1/models', method='GET', body=b'')"
    ),
    "neighbour's key, other scheme": "through = answered('Authorization: bearer ' + K['key'])",
    "neighbour's key without scheme": "through = answered('Authorization: ' + K['key'])",
    "neighbour's key as x-api-key": "through = answered('x-api-key: ' + K['key'])",
    "neighbour's key as api-key": "through = answered('api-key: ' + K['key'])",
    "neighbour's key as x-goog-api-key": "through = answered('x-goog-api-key: ' + K['key'])",
    "neighbour's key in the query": "through = answered(path='/v1/chat/completions?key=' + K['key'])",
    "neighbour's key as a token of the query": "through = answered(path='/v1/chat/completions?api_key=' + K['key'])",
    "neighbour's key in a cookie": "through = answered('Cookie: api_key=' + K['key'])",
    "neighbour's key for a proxy": "through = answered('Proxy-Authorization: Bearer ' + K['key'])",
    "neighbour's key as a password": (
        "import base64\nthrough = answered('Authorization: Basic ' + base64.b64encode(b':' + K['key'].encode()).decode())"
    ),
    "neighbour's key before the own": (
        "through = answered('Authorization: Bearer ' + K['key'], 'Authorization: Bearer ' + OWN_KEY) and K['key'] == OWN_KEY"
    ),
    "neighbour's key in another case": "through = answered('Authorization: Bearer ' + K['key'].upper())",
    "start of the own key": "through = answered('Authorization: Bearer ' + OWN_KEY[:-1])",
    "no key": "through = answered()",
    "empty key": "through = answered('Authorization: Bearer ')",
    "key null": "through = answered('Authorization: Bearer null')",
    "forwarded for the machine": "through = answered('X-Forwarded-For: 127.0.0.1', 'Forwarded: for=127.0.0.1')",
    "connect through the model's door": (
        "through = reached(raw(f\"CONNECT 127.0.0.1:{K['port']} HTTP/1.1\\r\\nHost: x\\r\\n\\r\\nGET / HTTP/1.0\\r\\n\\r\\n\"))"
    ),
    "connect through it with the own key": (
        "line = f\"CONNECT 127.0.0.1:{K['port']} HTTP/1.1\"\n"
        "through = reached(raw(request('Authorization: Bearer ' + OWN_KEY, line=line, body=b'') + b'GET / HTTP/1.0\\r\\n\\r\\n'))"
    ),
    "absolute address of the machine's server": (
        "line = f\"GET http://127.0.0.1:{K['port']}/ HTTP/1.1\"\n"
        "through = reached(raw(request('Authorization: Bearer ' + OWN_KEY, line=line, body=b'')))"
    ),
    "host header of the machine's server": (
        "through = reached(raw(f\"GET / HTTP/1.1\\r\\nHost: 127.0.0.1:{K['port']}\\r\\nConnection: close\\r\\n\\r\\n\"))"
    ),
    "path above the interface": "through = answered('Authorization: Bearer ' + OWN_KEY, path='/v1/../../etc/passwd', method='GET', body=b'')",
    "path above it, encoded": "through = b'root:' in raw(request('Authorization: Bearer ' + OWN_KEY, path='/%2e%2e/%2e%2e/etc/passwd', method='GET', body=b''))",
    "path of a file": "through = b'root:' in raw(request('Authorization: Bearer ' + OWN_KEY, path='//etc/passwd', method='GET', body=b''))",
    "trace": "through = answered('Authorization: Bearer ' + K['key'], method='TRACE', body=b'')",
    "options of everything": "through = answered(line='OPTIONS * HTTP/1.1', body=b'')",
    "websocket": "through = b' 101 ' in raw(request('Upgrade: websocket', 'Connection: Upgrade', 'Sec-WebSocket-Key: eA==', method='GET', body=b''))",
    "h2c": "through = b' 101 ' in raw(request('Upgrade: h2c', 'Connection: Upgrade, HTTP2-Settings', 'HTTP2-Settings: AAMAAABk'))",
    "http/2 preface": "through = b' 200 ' in raw(b'PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n')",
    "pipelined with the neighbour's key": (
        "answer = raw(own() + 'Content-Length: 2\\r\\n\\r\\n{}' + stolen().decode())\nthrough = answer.count(b' 200 OK')"
    ),
    "smuggled by length and chunks": (
        "answer = raw(own().encode() + b'Content-Length: 4\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n0\\r\\n\\r\\n' + stolen())\n"
        "through = answer.count(b' 200 OK')"
    ),
    "smuggled by chunks and length": (
        "inner = stolen()\nanswer = raw(own().encode() + b'Transfer-Encoding: chunked\\r\\nContent-Length: 3\\r\\n\\r\\n' + b'%x\\r\\n' % len(inner) + inner + b'\\r\\n0\\r\\n\\r\\n')\n"
        "through = answer.count(b' 200 OK')"
    ),
    "two lengths": (
        "answer = raw(own().encode() + b'Content-Length: 2\\r\\nContent-Length: 0\\r\\n\\r\\n{}' + stolen())\nthrough = answer.count(b' 200 OK')"
    ),
    "negative length": "through = answered('Content-Length: -1', 'Authorization: Bearer ' + K['key'])",
    "length with a sign": (
        "answer = raw(own().encode() + b'Content-Length: +0\\r\\n\\r\\n' + stolen())\nthrough = answer.count(b' 200 OK')"
    ),
    "chunk size that overflows": (
        "answer = raw(own().encode() + b'Transfer-Encoding: chunked\\r\\n\\r\\nffffffffffffffff1\\r\\n' + stolen())\nthrough = answer.count(b' 200 OK')"
    ),
    "header folded into the next": "through = answered('X: y', ' Authorization: Bearer ' + K['key'])",
    "header with a space before the colon": "through = answered('Authorization : Bearer ' + K['key'])",
    "bare line feeds": (
        "through = b' 200 OK' in raw(f\"POST /v1/chat/completions HTTP/1.1\\nHost: x\\nAuthorization: Bearer {K['key']}\\nContent-Length: {len(BODY)}\\n\\n\".encode() + BODY)"
    ),
    "key after a null": "through = answered('Authorization: Bearer \\0' + K['key'])",
    "a megabyte of header": "through = answered('X: ' + 'x' * 1_000_000, 'Authorization: Bearer ' + K['key'])",
    "ten thousand headers": "through = answered(*(f'X{n}: y' for n in range(10_000)), 'Authorization: Bearer ' + K['key'])",
    "neighbour's response": (
        "body = json.dumps({'model': 'm', 'input': 'x', 'previous_response_id': K['response']}).encode()\n"
        "through = K['said'].encode() in raw(request('Authorization: Bearer ' + OWN_KEY, path='/v1/responses', body=body))"
    ),
    "neighbour's port inside": "through = raw(request('Authorization: Bearer ' + K['key']), K['door'])",
}

CONNECT = "s = socket.socket(*{kind}); s.settimeout(1); s.connect({address}); s.send(b'out'); through = True"
NETWORK = {
    "machine's server": "raw(b'x', K['port']); through = True",
    "machine's server by version 6": "raw(b'x', K['port'], '::1'); through = True",
    "machine's server by a mapped address": CONNECT.format(kind=(10, 1), address="('::ffff:127.0.0.1', K['port'])"),
    "machine's server by any address": "raw(b'x', K['port'], '0.0.0.0'); through = True",
    "machine's server by its name": "raw(b'x', K['port'], K['host']); through = True",
    "machine's server by a usual gateway": "raw(b'x', K['port'], '10.0.2.2'); through = True",
    "cloud's metadata": "raw(b'GET / HTTP/1.0\\r\\n\\r\\n', 80, '169.254.169.254'); through = True",
    "datagram to the machine": (
        "s = socket.socket(2, 2); s.sendto(b'out', ('127.0.0.1', K['datagram'])); s.settimeout(1); through = s.recv(9)"
    ),
    "datagram to everybody": "s = socket.socket(2, 2); s.setsockopt(1, 6, 1); s.sendto(b'out', ('255.255.255.255', 9)); through = True",
    "multicast": "s = socket.socket(2, 2); s.sendto(b'out', ('224.0.0.1', 9)); through = True",
    "machine's unix socket": CONNECT.format(kind=(1, 1), address="K['unix']"),
    "machine's abstract socket": CONNECT.format(kind=(1, 1), address="chr(0) + K['abstract']"),
    "any port but the doors": (
        "found = []\n"
        "for port in range(1, 65536):\n"
        "    s = socket.socket()\n"
        "    if port not in (PORT, PROXY) and s.connect_ex(('127.0.0.1', port)) == 0 and s.getsockname()[1] != port: found.append(port)\n"
        "    s.close()\n"
        "through = found"
    ),
    "name service": "socket.getaddrinfo('example.org', 80); through = True",
    "raw socket": "socket.socket(2, 3, 1); through = True",
    "ping socket": "socket.socket(2, 2, 1); through = True",
    "packet socket": "socket.socket(17, 3); through = True",
    "netlink": "socket.socket(16, 3); through = True",
    "vsock": "socket.socket(40, 1); through = True",
    "kernel's crypto": "socket.socket(38, 5); through = True",
    "address of the loopback": (
        "fcntl.ioctl(socket.socket(), 0x8916, struct.pack('16sH2x4s8x', b'lo', 2, bytes([10, 0, 0, 1]))); through = True"
    ),
    "loopback down": "fcntl.ioctl(socket.socket(), 0x8914, struct.pack('16sH22x', b'lo', 0)); through = True",
    "setting of the network": "open('/proc/sys/net/ipv4/ip_forward', 'w').write('1'); through = True",
    "ping for everybody": "open('/proc/sys/net/ipv4/ping_group_range', 'w').write('0 9999'); through = True",
    "machine's network by process 1": "failed(libc.setns(os.open('/proc/1/ns/net', 0), 0x40000000)); through = True",
    "new network": "failed(libc.unshare(0x40000000)); through = True",
    "other devices": "through = [n for _, n in socket.if_nameindex() if n != 'lo']",
    "connections of others": "through = [l for l in open('/proc/net/unix').read().splitlines()[1:] if K['abstract'] in l]",
    "neighbour's connections": "through = f':{K[\"door\"]:04X} ' in open('/proc/net/tcp').read()",
    "listening in the door's stead": (
        "s = socket.socket(); s.setsockopt(1, 2, 1); s.setsockopt(1, 15, 1); s.bind(('127.0.0.1', PORT)); s.listen(); through = True"
    ),
}

EGRESS = {
    f"tunnel to {name}": f"through = tunnel({target})"
    for name, target in {
        "the machine": "f\"127.0.0.1:{K['port']}\"",
        "the machine by version 6": "f\"[::1]:{K['port']}\"",
        "a mapped address": "f\"[::ffff:127.0.0.1]:{K['port']}\"",
        "a mapped address in digits": "f\"[::ffff:7f00:1]:{K['port']}\"",
        "a decimal address": "f\"2130706433:{K['port']}\"",
        "an octal address": "f\"0177.0.0.1:{K['port']}\"",
        "a hexadecimal address": "f\"0x7f.1:{K['port']}\"",
        "a short address": "f\"127.1:{K['port']}\"",
        "any address": "f\"0.0.0.0:{K['port']}\"",
        "a listed name of the machine": "f\"localhost:{K['port']}\"",
        "that name with a dot": "f\"localhost.:{K['port']}\"",
        "that name in capitals": "f\"LOCALHOST:{K['port']}\"",
        "the machine's own name": "f\"{K['host']}:{K['port']}\"",
        "cloud metadata": "'169.254.169.254:80'",
        "another port of the listed server": "'127.0.0.1:22'",
        "a port that overflows": "f\"127.0.0.1:{65536 + K['port']}\"",
        "a port with a sign": "f\"127.0.0.1:+{K['port']}\"",
        "a listed user at the machine": "f\"127.0.0.1:{K['listed']}@127.0.0.1:{K['port']}\"",
        "the machine after a tab": "f\"127.0.0.1:{K['listed']}\\t127.0.0.1:{K['port']}\"",
        "the machine after a null": "f\"allowed.example\\0.127.0.0.1:{K['port']}\"",
        "full-width digits": "f\"\\xef\\xbc\\x91127.0.0.1:{K['port']}\"",
        "an encoded address": "f\"%31%32%37.0.0.1:{K['port']}\"",
        "a zone": "f\"[fe80::1%lo]:{K['port']}\"",
        "nothing": "''",
        "a wildcard": "'*:443'",
        "the neighbour's door": "f\"127.0.0.1:{K['door']}\"",
        "a name under a listed one": "f\"x.localhost:{K['port']}\"",
        "a name over a listed one": "'example:443'",
    }.items()
} | {
    "plain request to the machine": "through = reached(plain(f\"http://127.0.0.1:{K['port']}/\"))",
    "plain request to a listed name of it": "through = reached(plain(f\"http://localhost:{K['port']}/\"))",
    "plain request with a user": "through = reached(plain(f\"http://127.0.0.1:{K['listed']}@127.0.0.1:{K['port']}/\"))",
    "plain request with a fragment": "through = reached(plain(f\"http://127.0.0.1:{K['port']}#@127.0.0.1:{K['listed']}/\"))",
    "plain request with a backslash": "through = reached(plain(f\"http://127.0.0.1:{K['port']}\\\\@127.0.0.1:{K['listed']}/\"))",
    "other host in a plain request": (
        "through = b'host: evil' in plain(f\"http://127.0.0.1:{K['listed']}/echo\", 'Host: evil', 'Connection: close').lower()"
    ),
    "second plain request of a connection": (
        "first = f\"GET http://127.0.0.1:{K['listed']}/echo HTTP/1.1\\r\\n\\r\\n\"\n"
        "through = reached(raw(first + f\"GET http://127.0.0.1:{K['port']}/ HTTP/1.1\\r\\n\\r\\n\", PROXY))"
    ),
    "chunks in a plain request": (
        "through = b'hidden' in plain(f\"http://127.0.0.1:{K['listed']}/echo\", 'Transfer-Encoding: chunked', '', '0', '', 'GET /hidden HTTP/1.1', method='POST')"
    ),
    "two lengths in a plain request": (
        "through = b' 200 ' in plain(f\"http://127.0.0.1:{K['listed']}/echo\", 'Content-Length: 0', 'Content-Length: 9', method='POST')"
    ),
    "line break in a header": "through = b'x-evil' in plain(f\"http://127.0.0.1:{K['listed']}/echo\", 'A: b\\nX-Evil: c').lower()",
    "upgrade in a plain request": "through = b'upgrade' in plain(f\"http://127.0.0.1:{K['listed']}/echo\", 'Upgrade: h2c').lower()",
    "file address": "through = b'root:' in plain('file:///etc/passwd')",
    "address of files by ftp": "through = b' 200 ' in plain('ftp://127.0.0.1/etc/passwd')",
    "relative address": "through = b' 200 ' in plain('/')",
    "redirect to the machine": (
        "answer = plain(f\"http://127.0.0.1:{K['listed']}/away\")\n"
        "place = answer.split(b'Location: ')[1].split(b'\\r')[0].decode()\nthrough = reached(plain(place))"
    ),
    "endless head": "through = b' 200 ' in raw('GET http://x/ HTTP/1.1\\r\\n' + 'X: y\\r\\n' * 20_000, PROXY)",
}

ISOLATION = {
    "neighbour's variables": "through = open(f\"/proc/{K['pid']}/environ\", 'rb').read()",
    "neighbour's command line": "through = open(f\"/proc/{K['pid']}/cmdline\", 'rb').read()",
    "neighbour's memory": "through = open(f\"/proc/{K['pid']}/mem\", 'rb')",
    "neighbour's folder": "through = os.listdir(f\"/proc/{K['pid']}/root/work\")",
    "neighbour's descriptors": "through = os.listdir(f\"/proc/{K['pid']}/fd\")",
    "signal to the neighbour": "os.kill(K['pid'], 0); through = True",
    "end of the neighbour": "os.kill(K['pid'], 9); through = True",
    "signal to the machine's process": "os.kill(K['machine'], 0); through = True",
    "descriptor of the neighbour's process": "os.pidfd_open(K['pid']); through = True",
    "trace of the neighbour": "failed(libc.ptrace(16, K['pid'], 0, 0)); through = True",
    "priority of the neighbour": "os.setpriority(os.PRIO_PROCESS, K['pid'], 19); through = True",
    "limits of the neighbour": "resource.prlimit(K['pid'], resource.RLIMIT_NOFILE, (0, 0)); through = True",
    "session keyring": "failed(libc.syscall(250, 0, -3, 0)); through = True",
    "any process of another user": (
        "through = [p for p in os.listdir('/proc') if p.isdigit() and os.stat('/proc/' + p).st_uid != os.getuid()]"
    ),
    "any process with the neighbour's key": (
        "through = [p for p in os.listdir('/proc') if p.isdigit() and p != str(os.getpid()) and K['said'].encode() in open(f'/proc/{p}/cmdline', 'rb').read()]"
    ),
    "descriptors that were handed over": (
        "through = [fd for fd in range(3, 256) if fd not in (reader, writer) and os.path.exists(f'/proc/self/fd/{fd}') and "
        "not os.readlink(f'/proc/self/fd/{fd}').startswith(('pipe:', '/proc'))]"
    ),
    "namespaces that process 1 holds": (
        "through = [l for fd in os.listdir('/proc/1/fd') if not (l := os.readlink('/proc/1/fd/' + fd)).startswith(('pipe:', '/dev', '/work'))]"
    ),
    "certificates": "open('/etc/ssl/certs/ca-certificates.crt', 'a').write('x'); through = True",
    "new certificate": "open('/etc/ssl/certs/mine.pem', 'w').write('x'); through = True",
    "what is shown to it": "open(K['shown'] + '/file', 'a').write('x'); through = True",
    "new file in what is shown": "open(K['shown'] + '/new', 'w').write('x'); through = True",
    "owner of what is shown": "os.chmod(K['shown'] + '/file', 0o777); through = True",
    "machine's folder of shared files": "through = os.path.exists(K['unix'])",
    "locks of users": "through = os.listdir('/tmp/wanderlust-users')",
    "other users' number": "os.setuid(K['uid'] + 1); through = True",
    "machine's control groups": "through = os.listdir('/sys/fs/cgroup')",
    "own control group": "through = 'wanderlust' in open('/proc/self/cgroup').read()",
}

BREACHES = {
    f"{kind}: {name}": source
    for kind, table in {"door": DOOR, "network": NETWORK, "egress": EGRESS, "isolation": ISOLATION}.items()
    for name, source in table.items()
}

HOLD = """
import ctypes, fcntl, mmap, os, resource, signal, socket, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
held = []
def until_refused(take, most=100_000):
    try:
        for _ in range(most): held.append(take())
    except (OSError, MemoryError, RuntimeError): pass
def forked(body, count=20):
    for _ in range(count):
        try:
            if os.fork() == 0:
                try: body()
                finally: time.sleep(60)
        except OSError: return
"""
"""What exhausting code may use; it takes all it can, and is held while the neighbour works."""

EXHAUSTIONS = {
    "watches of files": "def take():\n    fd = libc.inotify_init1(0)\n    if fd < 0: raise OSError\n    return fd\nforked(lambda: until_refused(take))",
    "watched folders": (
        "fd = libc.inotify_init1(0)\n"
        "for place, folders, files in os.walk('/usr'):\n"
        "    if libc.inotify_add_watch(fd, place.encode(), 0xfff) < 0: break"
    ),
    "pipes": (
        "def take():\n    r, w = os.pipe()\n    fcntl.fcntl(w, 1031, 1 << 20)\n    os.set_blocking(w, False)\n"
        "    os.write(w, bytes(1 << 20))\n    return r, w\nforked(lambda: until_refused(take))"
    ),
    "pending signals": (
        "signal.pthread_sigmask(signal.SIG_BLOCK, range(34, 60))\n"
        "forked(lambda: until_refused(lambda: libc.sigqueue(os.getpid(), 40, None) and 1 / 0 or 0, 5000))"
    ),
    "timers": (
        "class Event(ctypes.Structure):\n    _fields_ = [('v', ctypes.c_void_p), ('s', ctypes.c_int), ('n', ctypes.c_int), ('x', ctypes.c_char * 48)]\n"
        "def take():\n    if libc.timer_create(1, ctypes.byref(Event(None, 10, 1)), ctypes.byref(ctypes.c_void_p())) < 0: raise OSError\n"
        "forked(lambda: until_refused(take))"
    ),
    "locks": (
        "def take():\n    f = open('/work/lock', 'a')\n    for n in range(2000): fcntl.lockf(f, 2 | 4, 1, 2 * n)\n    return f\n"
        "forked(lambda: until_refused(take, 20), 4)"
    ),
    "processes": "forked(lambda: None, 10_000)",
    "threads": (
        "threading.stack_size(65536)\nuntil_refused(lambda: threading.Thread(target=time.sleep, args=(60,), daemon=True).start(), 10_000)"
    ),
    "open files": "forked(lambda: until_refused(lambda: open('/usr/bin/env', 'rb')))",
    "epoll": "import select\nforked(lambda: until_refused(lambda: select.epoll()))",
    "event counters": "forked(lambda: until_refused(lambda: os.eventfd(0)))",
    "terminals": "import pty\nforked(lambda: until_refused(pty.openpty))",
    "memory": "forked(lambda: until_refused(lambda: bytearray(b'x' * (8 << 20)), 400), 4)",
    "folder": "until_refused(lambda: open('/work/fill', 'ab', 0).write(bytes(1 << 20)))",
    "temporary folder": "until_refused(lambda: open('/tmp/fill', 'ab', 0).write(bytes(1 << 20)))",
    "shared memory": "until_refused(lambda: open('/dev/shm/fill', 'ab', 0).write(bytes(1 << 20)))",
    "entries": "n = 0\ntry:\n    while True: open(f'/work/{n}', 'w').close(); n += 1\nexcept OSError: pass",
    "names that are not there": "for n in range(200_000): os.path.exists(f'/work/none-{n}')",
    "sockets": "forked(lambda: until_refused(lambda: socket.create_server(('127.0.0.1', 0))))",
    "buffers of sockets": (
        "def take():\n    a, b = socket.socketpair()\n    a.setblocking(False)\n    a.setsockopt(1, 7, 1 << 20)\n"
        "    try:\n        while True: a.send(bytes(65536))\n    except BlockingIOError: pass\n    return a, b\n"
        "forked(lambda: until_refused(take, 200), 8)"
    ),
    "names of sockets": "until_refused(lambda: socket.socket(1).bind('\\0name%d' % len(held)))",
    "processor": ("def burn():\n    while True: pass\nforked(burn, 40)"),
    "switching": (
        "def swap():\n    r, w = os.pipe()\n    while True: os.write(w, b'x'); os.read(r, 1)\nforked(swap, 40)"
    ),
    "connections to the door": "forked(lambda: until_refused(lambda: socket.create_connection(('127.0.0.1', PORT))))",
    "half requests at the door": (
        "def take():\n    s = socket.create_connection(('127.0.0.1', PORT))\n    s.send(b'POST /v1/chat/completions HTTP/1.1\\r\\nContent-Length: 9999999\\r\\n\\r\\nx')\n    return s\n"
        "forked(lambda: until_refused(take, 200), 8)"
    ),
    "bodies at the door": (
        "def take():\n    s = socket.create_connection(('127.0.0.1', PORT), timeout=2)\n"
        "    s.sendall(b'POST /v1/chat/completions HTTP/1.1\\r\\nContent-Length: 16000000\\r\\n\\r\\n' + bytes(15_000_000))\n    return s\n"
        "forked(lambda: until_refused(take, 10), 8)"
    ),
    "requests at the door": (
        "def ask():\n    while True:\n        s = socket.create_connection(('127.0.0.1', PORT))\n        s.send(b'GET / HTTP/1.0\\r\\n\\r\\n')\n        s.recv(999)\n        s.close()\nforked(ask, 8)"
    ),
}
"""What one box takes all of while its neighbour has to work."""
