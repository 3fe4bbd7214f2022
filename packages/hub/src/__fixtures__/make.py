"""Makes the files of the tests of `openStateDict`: `python make.py`; see ORIGIN.md."""
import json
import os
import pickle
import zipfile
from collections import OrderedDict
from pathlib import Path

import numpy as np
import torch

FOLDER = Path(__file__).resolve().parent


def save(name: str, content, **options) -> None:
    torch.save(content, FOLDER / f"{name}.pt", **options)
    (FOLDER / f"{name}.pt").chmod(0o644)


class Call:
    """What a file that wants to run code looks like."""

    def __reduce__(self):
        return os.system, ("echo executed",)


generator = np.random.default_rng(20261130)
values = torch.from_numpy(generator.standard_normal((3, 4)))
layer = torch.nn.Linear(4, 3).half()
layer.weight.data = values.half()
layer.bias.data = values[:, 0].half()
shared = torch.arange(12, dtype=torch.float32)
tensors = OrderedDict(
    f32=values.float(),
    bf16=values.bfloat16(),
    f64=values,
    i64=torch.arange(3),
    i8=torch.tensor([-1, 2], dtype=torch.int8),
    parameter=torch.nn.Parameter(values[0].float()),
    rows=shared.reshape(3, 4)[1:],
    scalar=torch.tensor(2.5),
    empty=torch.zeros(0, 4),
)
save("linear", layer.state_dict())
save("tensors", tensors)
save("transposed", {"weight": values.float().T})
save("booleans", {"weight": torch.tensor([True])})
save("module", {"weight": {"nested": torch.zeros(1)}})
save("legacy", layer.state_dict(), _use_new_zipfile_serialization=False)
with zipfile.ZipFile(FOLDER / "code.pt", "w") as archive:
    archive.writestr(zipfile.ZipInfo("code/data.pkl"), pickle.dumps({"weight": Call()}, protocol=2))
every = {**layer.state_dict(), **tensors}
expected = {name: dict(shape=list(tensor.shape), values=tensor.detach().double().flatten().tolist()) for name, tensor in every.items()}
(FOLDER / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
