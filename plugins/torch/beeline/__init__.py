"""Beeline for PyTorch: importing this package registers the backend "beeline".

    import beeline
    torch.distributed.init_process_group("beeline")

PyTorch also finds it by itself, without the import, where this package lies on
PYTHONPATH. It serves CPU tensors.
"""

import atexit

import torch
import torch.distributed as dist

try:
    from . import _torch
except ImportError as error:
    raise ImportError(
        f"beeline's extension does not load with PyTorch {torch.__version__}: {error}. "
        "scripts/build builds it for this PyTorch."
    ) from error

__version__ = _torch.library_version

_backends = []


def _same_release(built_for, running):
    return built_for.split("+")[0].split(".")[:2] == running.split("+")[0].split(".")[:2]


def _create(options, _backend_options):
    _backends[:] = [backend for backend in _backends if not _torch.is_closed(backend)]
    backend = _torch.create(
        options.store, options.group_rank, options.group_size, options.timeout, options.group_id or "default"
    )
    _backends.append(backend)
    return backend


# The backend's thread may want the interpreter, so it must end before that does.
@atexit.register
def _close_all():
    for backend in _backends:
        _torch.close(backend)


def register():
    """Adds "beeline" to torch.distributed's backends; again is fine."""
    if not _same_release(_torch.built_for, torch.__version__):
        raise ImportError(
            f"beeline was built for PyTorch {_torch.built_for}, this is {torch.__version__}; "
            "scripts/build builds it anew."
        )
    if "beeline" not in dist.Backend.backend_list:
        dist.Backend.register_backend("beeline", _create, extended_api=True, devices=["cpu"])


register()
