"""A container image of this machine's own programs: bash, coreutils and what else tasks use, without a network."""

import functools
import io
import os
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

IMAGE = "localhost/wanderlust-test:latest"
PROGRAMS = (
    *(
        "base64",
        "bash",
        "sh",
        "cat",
        "chmod",
        "cp",
        "cut",
        "echo",
        "env",
        "find",
        "grep",
        "head",
        "id",
        "ls",
        "mkdir",
        "mv",
    ),
    *("pwd", "realpath", "rm", "sed", "setsid", "sleep", "tail", "tar", "touch", "true", "wc", "whoami"),
)


def archive():
    """The programs, the libraries that they load, and the files of a system, as a tar."""
    files = {}
    for name in PROGRAMS:
        found = shutil.which(name, path="/usr/bin:/bin")
        files[f"usr/bin/{name}"] = Path(found).resolve()
        loaded = subprocess.run(["ldd", found], capture_output=True, text=True, check=False).stdout
        for word in loaded.split():
            if word.startswith("/"):
                files[word.lstrip("/")] = Path(word).resolve()
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for folder in ("tmp", "etc", "root", "work", "var"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder in ("tmp", "work") else 0o755
            tar.addfile(entry)
        link = tarfile.TarInfo("bin")
        link.type, link.linkname = tarfile.SYMTYPE, "usr/bin"
        tar.addfile(link)
        texts = {"etc/passwd": b"root:x:0:0::/root:/bin/bash\n", "etc/group": b"root:x:0:\n"}
        for name, data in texts.items() | {(name, path.read_bytes()) for name, path in files.items()}:
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o644 if name in texts else 0o755
            tar.addfile(entry, io.BytesIO(data))
    return out.getvalue()


SETTINGS = '[engine]\nruntime = "runc"\n[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]\n'
"""Of Podman, for machines whose root may not raise limits and whose control groups crun does not take."""


@functools.cache
def engine_with_image():
    """An engine that runs the image, which is made where it is missing, and its variables; or why none does."""
    settings = Path(tempfile.gettempdir()) / f"wanderlust-containers-{os.getuid()}.conf"
    settings.write_text(SETTINGS)
    why = "neither Podman nor Docker is installed"
    for engine, variables in (("podman", {}), ("podman", {"CONTAINERS_CONF": str(settings)}), ("docker", {})):
        if not shutil.which(engine):
            continue
        run = functools.partial(subprocess.run, capture_output=True, check=False, env=os.environ | variables)
        if run([engine, "image", "inspect", IMAGE]).returncode:
            run([engine, "import", "-", IMAGE], input=archive())
        done = run([engine, "run", "--rm", "--network=none", IMAGE, "bash", "-c", "echo it runs"])
        if done.stdout == b"it runs\n":
            return engine, variables
        why = f"{engine} runs no container here: {done.stderr.decode(errors='replace').strip()[-200:]}"
    return "", why
