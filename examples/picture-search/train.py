"""Draws the pictures and trains the model of this folder: `python train.py`; see README.md.

A CLIP of 66,000 weights learns twelve captions from shapes that are drawn anew for every step. The pictures of the folder
are drawn with another seed, so that it has not seen them.
"""
import shutil
from pathlib import Path

import numpy as np
import torch
import transformers
from PIL import Image, ImageDraw
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

FOLDER = Path(__file__).resolve().parent
COLORS = {"red": (220, 30, 40), "green": (30, 180, 60), "blue": (40, 70, 220), "yellow": (240, 210, 40)}
SHAPES = ["circle", "square", "triangle"]
CAPTIONS = [(color, shape) for color in COLORS for shape in SHAPES]
SPECIAL = ["<unk>", "<pad>", "<start>", "<end>"]
WORDS = ["a", *COLORS, *SHAPES]
NUM_STEPS = 1500


def draw(color: str, shape: str, random: np.random.Generator) -> Image.Image:
    image = Image.new("RGB", (48, 48), tuple(random.integers(0, 90, 3).tolist()))
    pen = ImageDraw.Draw(image)
    size = int(random.integers(18, 34))
    left, top = (int(value) for value in random.integers(2, 46 - size, 2))
    fill = tuple(int(np.clip(value + random.integers(-25, 26), 0, 255)) for value in COLORS[color])
    box = [left, top, left + size, top + size]
    if shape == "circle":
        pen.ellipse(box, fill=fill)
    elif shape == "square":
        pen.rectangle(box, fill=fill)
    else:
        pen.polygon([(left, top + size), (left + size, top + size), (left + size // 2, top)], fill=fill)
    return image


def tokenizer() -> transformers.PreTrainedTokenizerFast:
    vocabulary = {token: index for index, token in enumerate([*SPECIAL, *WORDS])}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    words.normalizer = normalizers.Lowercase()
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.add_special_tokens(SPECIAL)
    words.post_processor = processors.TemplateProcessing(
        single="<start> $A <end>", special_tokens=[("<start>", 2), ("<end>", 3)]
    )
    return transformers.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", unk_token="<unk>")


def train() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    random = np.random.default_rng(1)
    words = tokenizer()
    sizes = dict(num_attention_heads=4, intermediate_size=96)
    config = transformers.CLIPConfig(
        text_config=sizes
        | dict(hidden_size=32, num_hidden_layers=1, max_position_embeddings=16)
        | dict(vocab_size=len(SPECIAL) + len(WORDS), bos_token_id=2, eos_token_id=3, pad_token_id=1),
        vision_config=sizes | dict(hidden_size=48, num_hidden_layers=2, image_size=32, patch_size=8),
        projection_dim=32,
    )
    processor = transformers.CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})
    model = transformers.CLIPModel(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, NUM_STEPS)
    ids = torch.tensor([words(f"a {color} {shape}")["input_ids"] for color, shape in CAPTIONS])
    for step in range(NUM_STEPS):
        images = [draw(color, shape, random) for color, shape in CAPTIONS]
        pixels = processor(images, return_tensors="pt")["pixel_values"]
        loss = model(input_ids=ids, pixel_values=pixels, return_loss=True).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 250 == 0 or step == NUM_STEPS - 1:
            print(f"step {step}: loss {loss.item():.3f}")
    shutil.rmtree(FOLDER / "model", ignore_errors=True)
    model.half().save_pretrained(FOLDER / "model")
    (FOLDER / "model" / "model.safetensors").chmod(0o644)
    words.save_pretrained(FOLDER / "model")
    processor.save_pretrained(FOLDER / "model")
    shutil.rmtree(FOLDER / "pictures", ignore_errors=True)
    (FOLDER / "pictures").mkdir()
    for number, (color, shape) in enumerate(CAPTIONS):
        # named by number, so that no name tells what is on a picture
        draw(color, shape, np.random.default_rng([20261129, number])).save(FOLDER / "pictures" / f"{number:02}.png")


train()
