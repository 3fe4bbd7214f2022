"""Makes the images and `goldens.json` of this folder: `python make_goldens.py`; see ORIGIN.md.

Images are drawn here and encoded by Pillow; pixels are those that Pillow decodes, tiles those of transformers' processors that
use Pillow, as SHA-256 of their 8-bit values. Shares no code with the package.
"""
import hashlib
import json
from io import BytesIO
from pathlib import Path

import numpy as np
import PIL
import transformers
from PIL import Image, ImageOps
from transformers import (
    CLIPImageProcessorPil,
    Gemma3ImageProcessorPil,
    Idefics3ImageProcessorPil,
    LlavaNextImageProcessorPil,
    LlavaOnevisionImageProcessorPil,
    Qwen2VLImageProcessorPil,
    SiglipImageProcessorPil,
)

FOLDER = Path(__file__).resolve().parent


def picture(width: int, height: int) -> Image.Image:
    """Gradients, hard edges and noise, in colors that differ by channel."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    noise = np.random.default_rng([20261129, width, height]).integers(0, 48, (height, width, 3))
    channels = [255 * x / width, 255 * y / height, 127 + 127 * np.sin((x * x + y * y) / (width * 3.0))]
    values = np.stack(channels, axis=-1) * 0.8 + noise
    values[height // 4 : height // 2, width // 3 : width // 2] = (250, 20, 90)
    return Image.fromarray(values.clip(0, 255).astype(np.uint8))


def files() -> dict[str, bytes]:
    def encoded(image: Image.Image, **options) -> bytes:
        stream = BytesIO()
        image.save(stream, **options)
        return stream.getvalue()

    wide, tall, small = picture(61, 40), picture(33, 70), picture(20, 13)
    exif = Image.Exif()
    exif[0x0112] = 6  # rotated by 90 degrees
    alpha = small.copy()
    alpha.putalpha(small.getchannel(0))
    return {
        "wide.png": encoded(wide, format="PNG"),
        "alpha.png": encoded(alpha, format="PNG"),
        "palette.png": encoded(small.quantize(16), format="PNG"),
        "gray.png": encoded(small.convert("L"), format="PNG"),
        "tall.jpg": encoded(tall, format="JPEG", quality=88),
        "progressive.jpg": encoded(wide, format="JPEG", quality=75, progressive=True),
        "gray.jpg": encoded(small.convert("L"), format="JPEG", quality=90),
        "turned.jpg": encoded(wide, format="JPEG", quality=90, exif=exif),
        "lossy.webp": encoded(tall, format="WEBP", quality=80),
        "lossless.webp": encoded(alpha, format="WEBP", lossless=True, exact=True),
    }


NEXT_SIZES = [[28, 56], [56, 28], [56, 56], [84, 28], [28, 84]]
ONEVISION_SIZES = [[height, width] for height in (28, 56, 84) for width in (28, 56, 84)]
PROCESSORS = {
    "clip": (CLIPImageProcessorPil, dict(size={"shortest_edge": 24}, crop_size={"height": 24, "width": 24})),
    "clip-padded": (CLIPImageProcessorPil, dict(size={"shortest_edge": 24}, crop_size={"height": 31, "width": 31})),
    "clip-enlarged": (CLIPImageProcessorPil, dict(size={"shortest_edge": 56}, crop_size={"height": 48, "width": 48})),
    "siglip": (SiglipImageProcessorPil, dict(size={"height": 32, "width": 32})),
    "siglip-bilinear": (SiglipImageProcessorPil, dict(size={"height": 32, "width": 32}, resample=2)),
    "gemma3": (Gemma3ImageProcessorPil, dict(size={"height": 32, "width": 32})),
    "idefics3": (Idefics3ImageProcessorPil, dict(size={"longest_edge": 64}, max_image_size={"longest_edge": 28})),
    "idefics3-whole": (
        Idefics3ImageProcessorPil,
        dict(size={"longest_edge": 64}, max_image_size={"longest_edge": 28}, do_image_splitting=False),
    ),
    "llava-next": (
        LlavaNextImageProcessorPil,
        dict(
            size={"shortest_edge": 28}, crop_size={"height": 28, "width": 28}, image_grid_pinpoints=NEXT_SIZES
        ),
    ),
    "llava-onevision": (
        LlavaOnevisionImageProcessorPil,
        dict(size={"height": 28, "width": 28}, image_grid_pinpoints=ONEVISION_SIZES),
    ),
    "llava-onevision-several": (
        LlavaOnevisionImageProcessorPil,
        dict(size={"height": 28, "width": 28}, image_grid_pinpoints=ONEVISION_SIZES),
    ),
    # images of about 61 x 40, 33 x 70 and 20 x 13 pixels, as they are, enlarged and reduced; 40 / 16 is between two multiples
    "qwen2vl": (Qwen2VLImageProcessorPil, dict(patch_size=8, size={"shortest_edge": 64, "longest_edge": 9000})),
    "qwen2vl-enlarged": (Qwen2VLImageProcessorPil, dict(patch_size=8, min_pixels=2800, max_pixels=6400)),
    "qwen2vl-reduced": (Qwen2VLImageProcessorPil, dict(patch_size=4, min_pixels=64, max_pixels=700)),
}


def sha256(values: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()


def whole(patches: np.ndarray, grid: np.ndarray, merge: int, frames: int) -> np.ndarray:
    """The image of patches that are ordered by squares and repeated for each frame."""
    (_, rows, columns) = grid
    size = int(np.sqrt(patches.shape[1] / 3 / frames))
    parts = patches.reshape(rows // merge, columns // merge, merge, merge, 3, frames, size, size)
    assert (parts[:, :, :, :, :, :1] == parts).all()
    return parts[:, :, :, :, :, 0].transpose(0, 2, 5, 1, 3, 6, 4).reshape(1, rows * size, columns * size, 3)


def tiles_of(processor, image: Image.Image, is_one_of_several: bool) -> dict:
    result = processor([[image, image]] if is_one_of_several else image, return_tensors="np")
    values = result["pixel_values"][:1] if is_one_of_several else result["pixel_values"]
    if "image_grid_thw" in result:
        values = whole(values, result["image_grid_thw"][0], processor.merge_size, processor.temporal_patch_size)
    else:
        values = values.reshape(-1, *values.shape[-3:]).transpose(0, 2, 3, 1)
    if hasattr(processor, "image_grid_pinpoints"):
        values = np.roll(values, -1, axis=0)  # the whole image after the cells of the grid
    mean, std = np.array(processor.image_mean), np.array(processor.image_std)
    pixels = (values * std + mean) * 255
    rounded = pixels.round()
    assert np.abs(pixels - rounded).max() < 1e-3
    golden = {"shape": list(values.shape), "sha256": sha256(rounded.astype(np.uint8))}
    # some values as the model gets them: the first row of the last tile
    return golden | {"first": [round(float(value), 6) for value in values[-1, 0, :4].reshape(-1)]}


def main() -> None:
    images, processed = {}, {}
    for name, content in files().items():
        (FOLDER / name).write_bytes(content)
        image = ImageOps.exif_transpose(Image.open(BytesIO(content))).convert("RGB")
        images[name] = {"width": image.width, "height": image.height, "sha256": sha256(np.asarray(image))}
    settings = {}
    for name, (kind, options) in PROCESSORS.items():
        processor = kind(**options)
        settings[name] = {
            key: value for key, value in json.loads(processor.to_json_string()).items() if not key.startswith("_")
        }
        processed[name] = {}
        for file in ("wide.png", "tall.jpg", "alpha.png"):
            image = ImageOps.exif_transpose(Image.open(FOLDER / file)).convert("RGB")
            processed[name][file] = tiles_of(processor, image, name.endswith("-several"))
    source = f"Pillow {PIL.__version__}, transformers {transformers.__version__}"
    golden = {"source": source, "images": images, "settings": settings, "processed": processed}
    (FOLDER / "goldens.json").write_text(json.dumps(golden, indent=1) + "\n")


main()
