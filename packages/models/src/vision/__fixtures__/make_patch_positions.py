"""Makes `patch-positions.json`: `python make_patch_positions.py`; see ORIGIN.md.

Runs the embeddings of transformers on square images with a table of positions that contains its row numbers. Also prints the sizes at
which another level of vector instructions of torch gives other positions. Shares no code with the package.
"""
import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
LARGEST = 64


def positions(side: int) -> list[int]:
    import torch
    from transformers.models.idefics3.configuration_idefics3 import Idefics3VisionConfig
    from transformers.models.idefics3.modeling_idefics3 import Idefics3VisionEmbeddings

    config = Idefics3VisionConfig(hidden_size=1, image_size=side, patch_size=1, num_attention_heads=1)
    embeddings = Idefics3VisionEmbeddings(config).float()
    embeddings.patch_embedding.weight.data.zero_()
    embeddings.patch_embedding.bias.data.zero_()
    embeddings.position_embedding.weight.data = torch.arange(side**2, dtype=torch.float32)[:, None]
    pixels = torch.zeros(1, 3, side, side)
    with torch.no_grad():
        rows = embeddings(pixels, torch.ones(1, side, side, dtype=torch.bool))[0, :, 0].long().reshape(side, side)
    down, across = rows[:, 0] // side, rows[0] % side
    assert torch.equal(rows, down[:, None] * side + across) and torch.equal(down, across)
    return across.tolist()


def main() -> None:
    if sys.argv[1:] == ["print"]:
        print(json.dumps([positions(side) for side in range(1, LARGEST + 1)]))
        return
    levels = {}
    for level in ("avx2", "avx512", "default"):
        environment = {**os.environ, "ATEN_CPU_CAPABILITY": level}
        command = [sys.executable, __file__, "print"]
        levels[level] = json.loads(subprocess.run(command, env=environment, check=True, capture_output=True).stdout)
    for level, values in levels.items():
        other = [side for side in range(1, LARGEST + 1) if values[side - 1] != levels["avx2"][side - 1]]
        print(f"{level}: positions other than with avx2 at {other}")
    rows = ",\n".join(f"  {json.dumps(values)}" for values in levels["avx2"])
    (HERE / "patch-positions.json").write_text(f'{{\n "positions": [\n{rows}\n ]\n}}\n')


main()
