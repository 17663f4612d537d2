"""SkyRL 0.3.0's Tinker server with its JAX backend, started for tests: `MODEL PORT FOLDER`, all of it on this machine.

It runs in an environment of its own. Two things of that release do not fit here and are put right before
it is imported: pydantic on Python 3.11 wants typing_extensions' TypedDict, and the engine is started by an
installer that is not there.
"""

import json
import os
import sys
import typing
from importlib import import_module

import typing_extensions

typing.TypedDict = typing_extensions.TypedDict  # type: ignore[assignment]

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true")
BACKEND = {"max_lora_adapters": 4, "max_lora_rank": 8, "sample_max_num_sequences": 32, "train_micro_batch_size": 1}
"""Sizes are fixed, as every other one is compiled anew, and the compiler is told to hurry."""


def engine() -> None:
    """The process that computes."""
    import_module("skyrl.tinker.engine").main()


def serve(model: str, port: int, folder: str) -> None:
    """The HTTP server; it starts the engine."""
    api, config = import_module("skyrl.tinker.api"), import_module("skyrl.tinker.config")

    def command(_parent, settings):
        return [sys.executable, "-m", "benchmarks.peers.skyrl_server", *config.config_to_argv(settings)]

    api._build_uv_run_cmd_engine = command
    api.app.state.engine_config = config.EngineConfig(
        base_model=model,
        backend="jax",
        backend_config=BACKEND,
        checkpoints_base=f"{folder}/checkpoints",
        database_url=f"sqlite:///{folder}/tinker.db",
    )
    print(json.dumps({"port": port}), flush=True)
    import_module("uvicorn").run(api.app, host="127.0.0.1", port=port, log_level="warning")


if __name__ == "__main__":
    if sys.argv[1].startswith("--"):
        engine()
    else:
        serve(sys.argv[1], int(sys.argv[2]), sys.argv[3])
