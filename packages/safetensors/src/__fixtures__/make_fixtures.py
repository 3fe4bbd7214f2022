"""Writes the fixtures of @winnow/safetensors with the upstream implementation, and the corpus of broken files.

    pip install safetensors==0.8.0 numpy==2.4.6
    python make_fixtures.py          # writes next to itself; the same bytes every time

upstream-*.safetensors are written by upstream's serializer. fuzz/*.bin are bytes made here; fuzz/manifest.json says for
each what our reader must do ("ok", or the start of the field that a FormatError names) and what upstream does.
"""
import hashlib
import json
import pathlib
import struct

import numpy as np
import safetensors

here = pathlib.Path(__file__).parent
fuzz = here / "fuzz"
fuzz.mkdir(exist_ok=True)
for old in fuzz.glob("*.bin"):
    old.unlink()


def values(seed, count):
    return bytes((seed * 37 + i * 11) % 251 for i in range(count))


def serialize(tensors, metadata=None):
    arrays = {name: np.frombuffer(data, np.uint8) for name, (_, _, data) in tensors.items()}  # keeps the memory alive
    entries = {
        name: safetensors.TensorSpec(dtype=dtype, shape=shape, data_ptr=arrays[name].ctypes.data, data_len=len(data))
        for name, (dtype, shape, data) in tensors.items()
    }
    return bytes(safetensors.serialize(entries, metadata))


supported = {
    "f64": ("float64", [3], np.array([0.0, -1.5, 1e300]).tobytes()),
    "f32": ("float32", [2, 3], np.array([[1, -2, 3.5], [0, np.inf, 1e-40]], np.float32).tobytes()),
    "f16": ("float16", [2, 2, 1], np.array([1, -2, 65504, 6e-8], np.float16).tobytes()),
    "bf16": ("bfloat16", [5], values(1, 10)),
    "i64": ("int64", [2], np.array([-(2**63), 2**63 - 1]).tobytes()),
    "i32": ("int32", [], np.array(-7, np.int32).tobytes()),
    "i16": ("int16", [3, 1], np.array([-32768, 0, 32767], np.int16).tobytes()),
    "i8": ("int8", [7], values(2, 7)),
    "empty": ("float32", [0, 4], b""),
    "empty.huge": ("float32", [4, 0, 123456789], b""),
    'name "quoted" \\ \n tab\t': ("float32", [1], values(3, 4)),
    "größe/層.weight \U0001f40d": ("int8", [1], values(4, 1)),
    "": ("int8", [2], values(5, 2)),
    "b": ("float32", [1], values(6, 4)),
    "B": ("float32", [1], values(7, 4)),
    "z10": ("float32", [1], values(8, 4)),
    "z2": ("float32", [1], values(9, 4)),
    # orders differ between UTF-8 bytes and UTF-16 code units
    "\uff41": ("int8", [1], values(10, 1)),
    "\U00010400": ("int8", [1], values(11, 1)),
}
mixed = {
    "weight": ("float32", [2, 2], values(1, 16)),
    "bool": ("bool", [3], b"\1\0\1"),
    "u8": ("uint8", [4], values(2, 4)),
    "u16": ("uint16", [2], values(3, 4)),
    "u32": ("uint32", [1], values(4, 4)),
    "u64": ("uint64", [1], values(5, 8)),
    "f8_e4m3": ("float8_e4m3fn", [4], values(6, 4)),
    "f8_e5m2": ("float8_e5m2", [4], values(7, 4)),
}
upstream_files = {
    # one key: upstream writes several in random order
    "upstream-all-dtypes": serialize(supported, {"größe \"x\"": "line\nbreak \\ \x01 \u2028"}),
    "upstream-no-metadata": serialize({"only": ("float32", [2], values(1, 8))}),
    "upstream-empty": serialize({}),
    "upstream-unsupported": serialize(mixed, {"format": "np"}),
}
for name, data in upstream_files.items():
    (here / f"{name}.safetensors").write_bytes(data)


def file(header, data=b"", length=None, pad=True):
    text = header.encode() if isinstance(header, str) else header
    if pad:
        text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(name="a", dtype="F32", shape="[2,2]", offsets="[0,16]", extra=""):
    return f'"{name}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}{extra}}}'


def one(data=bytes(16), **fields):
    return file("{" + entry(**fields) + "}", data)


def many(*entries, data=b"", **options):
    return file("{" + ",".join(entries) + "}", data, **options)


good = "{" + entry() + "}"
A, B = entry("a", offsets="[0,16]"), entry("b", "I8", "[3]", "[16,19]")
d16, d19 = bytes(16), bytes(19)
cases = {
    # whole file and header length
    "no-bytes": (b"", "header length"),
    "seven-bytes": (bytes(7), "header length"),
    "length-zero": (bytes(8), "header"),
    "length-one-more": (file(good, length=len(good) + 64), "header length"),
    "length-limit-plus-one": (file(good, d16, length=100_000_001), "header length"),
    "length-2-63": (file(good, d16, length=2**63), "header length"),
    "length-all-ones": (file(good, d16, length=2**64 - 1), "header length"),
    "length-too-short": (file(good, d16, length=20), "a"),
    "length-into-data": (file(good, d16, length=len(good) + 8, pad=False), "header"),
    "gguf-magic": (b"GGUF" + struct.pack("<IQQ", 3, 0, 0), "header length"),
    "zip-magic": (b"PK\3\4" + bytes(60), "header length"),
    # start and end of the header
    "leading-space": (file(" " + good, d16), "header"),
    "leading-bom": (file(b"\xef\xbb\xbf" + good.encode(), d16), "header"),
    "header-array": (file("[]"), "header"),
    "header-string": (file('"x"'), "header"),
    "header-utf16": (file(good.encode("utf-16-le"), d16), "header"),
    "padding-nul": (file(good.encode() + b"\0" * (-len(good) % 8 or 8), d16), "header"),
    "padding-tab-newline": (file(good + "\t\r\n ", d16), "ok"),
    "padding-none": (file(good, d16, pad=False), "ok"),
    "second-value": (file(good + "{}", d16), "header"),
    "no-closing-brace": (file(good[:-1], d16), "header"),
    "trailing-comma": (file(good[:-1] + ",}", d16), "header"),
    "comment": (file(good[:-1] + "/*x*/}", d16), "header"),
    "empty-object": (file("{}"), "ok"),
    # strings
    "utf8-invalid-name": (file(good.encode().replace(b'"a"', b'"\xff\xfe"'), d16), "header"),
    "utf8-overlong-name": (file(good.encode().replace(b'"a"', b'"\xc0\xaf"'), d16), "header"),
    "utf8-surrogate-name": (file(good.encode().replace(b'"a"', b'"\xed\xa0\x80"'), d16), "header"),
    "escape-unpaired-surrogate": (one(name="\\ud800"), "header"),
    "escape-pair": (one(name="\\ud83d\\udc0d"), "ok"),
    "escape-unknown": (one(name="\\x41"), "header"),
    "escape-cut": (file('{"a\\'), "header"),
    "control-character": (file(good.encode().replace(b'"a"', b'"\x01"'), d16), "header"),
    "string-without-end": (file('{"aaaa', pad=False), "header"),
    "name-empty": (one(name=""), "ok"),
    "name-bom-differs": (many(entry("x", "I8", "[1]", "[0,1]"), entry("\ufeffx", "I8", "[1]", "[1,2]"), data=b"ab"), "ok"),
    "name-prototype": (one(name="__proto__"), "ok"),
    "name-long": (one(name="n" * 5000), "ok"),
    # duplicates
    "duplicate-tensor": (many(A, A, data=d16), "header"),
    "duplicate-tensor-escaped": (many(A, entry("\\u0061"), data=d16), "header"),
    "duplicate-tensor-other-range": (many(A, entry("a", "I8", "[3]", "[16,19]"), data=d19), "header"),
    "duplicate-dtype": (one(extra=',"dtype":"I32"'), "a"),
    "duplicate-offsets": (one(extra=',"data_offsets":[0,16]'), "a"),
    "duplicate-metadata": (many('"__metadata__":{}', A, '"__metadata__":{}', data=d16), "header"),
    "duplicate-metadata-key": (many('"__metadata__":{"k":"1","k":"2"}', A, data=d16), "__metadata__"),
    # metadata
    "metadata-last": (many(A, '"__metadata__":{"k":"v"}', data=d16), "ok"),
    "metadata-null": (many('"__metadata__":null', A, data=d16), "ok"),
    "metadata-number": (many('"__metadata__":{"k":1}', A, data=d16), "__metadata__.k"),
    "metadata-null-value": (many('"__metadata__":{"k":null}', A, data=d16), "__metadata__.k"),
    "metadata-nested": (many('"__metadata__":{"k":{"l":"m"}}', A, data=d16), "__metadata__.k"),
    "metadata-array": (many('"__metadata__":[]', A, data=d16), "__metadata__"),
    "metadata-string": (many('"__metadata__":"x"', A, data=d16), "__metadata__"),
    # fields of an entry
    "entry-null": (file('{"a":null}'), "a"),
    "entry-array": (file('{"a":["F32",[2,2],[0,16]]}', d16), "a"),
    "entry-number": (file('{"a":1}'), "a"),
    "missing-dtype": (file('{"a":{"shape":[2,2],"data_offsets":[0,16]}}', d16), "a.dtype"),
    "missing-shape": (file('{"a":{"dtype":"F32","data_offsets":[0,16]}}', d16), "a.shape"),
    "missing-offsets": (file('{"a":{"dtype":"F32","shape":[2,2]}}', d16), "a.data_offsets"),
    "unknown-field": (one(extra=',"note":{"x":[1,-2.5e3,"y",null,true,{}]}'), "ok"),
    "unknown-field-broken": (one(extra=',"note":[1,]'), "a.note"),
    "unknown-field-deep": (one(extra=',"note":' + "[" * 3000 + "]" * 3000), "a.note"),
    "unknown-field-open": (one(extra=',"note":' + "[" * 3000), "a.note"),
    "dtype-unknown": (one(dtype="F33"), "a.dtype"),
    "dtype-lower-case": (one(dtype="f32"), "a.dtype"),
    "dtype-empty": (one(dtype=""), "a.dtype"),
    "dtype-number": (file(good.replace('"F32"', "32"), d16), "a.dtype"),
    # shape
    "shape-string": (one(shape='"2,2"'), "a.shape"),
    "shape-null": (one(shape="null"), "a.shape"),
    "shape-negative": (one(shape="[-2,-2]"), "a.shape"),
    "shape-fraction": (one(shape="[2.0,2]"), "a.shape"),
    "shape-exponent": (one(shape="[4e0]"), "a.shape"),
    "shape-leading-zero": (one(shape="[02,2]"), "a.shape"),
    "shape-plus": (one(shape="[+2,2]"), "a.shape"),
    "shape-nan": (one(shape="[NaN]"), "a.shape"),
    "shape-nested": (one(shape="[[2,2]]"), "a.shape"),
    "shape-true": (one(shape="[true]"), "a.shape"),
    "shape-2-53": (one(shape="[9007199254740992]"), "a.shape"),
    "shape-2-64": (one(shape="[18446744073709551616]"), "a.shape"),
    "shape-1000-digits": (one(shape="[" + "9" * 1000 + "]"), "a.shape"),
    "shape-product-overflow": (one(shape="[4294967296,4294967296]"), "a.shape"),
    "shape-product-wraps-to-16": (one(shape="[4611686018427387905,4]", offsets="[0,16]"), "a.shape"),
    "shape-overflow-times-zero": (one(b"", shape="[4294967296,4294967296,0]", offsets="[0,0]"), "a.shape"),
    "shape-65-dims": (one(shape="[" + ",".join(["1"] * 63 + ["2", "2"]) + "]"), "a.shape"),
    "shape-64-dims": (one(shape="[" + ",".join(["1"] * 62 + ["2", "2"]) + "]"), "ok"),
    "shape-20000-dims": (one(shape="[" + "1," * 20000 + "4]"), "a.shape"),
    "shape-scalar": (one(bytes(4), shape="[]", offsets="[0,4]"), "ok"),
    "shape-f4-half-byte": (one(bytes(2), dtype="F4", shape="[3]", offsets="[0,2]"), "a.shape"),
    "shape-f4": (one(bytes(2), dtype="F4", shape="[4]", offsets="[0,2]"), "ok"),
    # offsets and layout
    "offsets-one": (one(offsets="[16]"), "a.data_offsets"),
    "offsets-three": (one(offsets="[0,8,16]"), "a.data_offsets"),
    "offsets-none": (one(offsets="[]"), "a.data_offsets"),
    "offsets-reversed": (one(offsets="[16,0]"), "a.data_offsets"),
    "offsets-negative": (one(offsets="[-16,0]"), "a.data_offsets"),
    "offsets-fraction": (one(offsets="[0,16.5]"), "a.data_offsets"),
    "offsets-2-53": (one(offsets="[0,9007199254740993]"), "a.data_offsets"),
    "offsets-below-2-53": (one(dtype="I8", shape="[9007199254740991]", offsets="[0,9007199254740991]"), "a"),
    "claim-one-petabyte": (one(dtype="I8", shape="[1125899906842624]", offsets="[0,1125899906842624]"), "a.data_offsets"),
    "size-too-small": (one(offsets="[0,12]"), "a.data_offsets"),
    "size-too-large": (one(bytes(20), offsets="[0,20]"), "a.data_offsets"),
    "size-of-f16": (one(dtype="F16"), "a.data_offsets"),
    "end-beyond-file": (one(bytes(15)), "a.data_offsets"),
    "second-beyond-file": (many(A, B, data=bytes(18)), "b.data_offsets"),
    "no-data": (many(A, B), "a.data_offsets"),
    "trailing-byte": (many(A, B, data=bytes(20)), "data"),
    "trailing-without-tensors": (file("{}", b"x"), "data"),
    "gap-at-start": (one(bytes(20), offsets="[4,20]"), "a.data_offsets"),
    "gap-between": (many(A, entry("b", "I8", "[3]", "[17,20]"), data=bytes(20)), "b.data_offsets"),
    "gap-before-empty": (many(A, entry("b", "I8", "[0]", "[17,17]"), data=bytes(17)), "b.data_offsets"),
    "overlap-one-byte": (many(A, entry("b", "I8", "[4]", "[15,19]"), data=d19), "b.data_offsets"),
    "overlap-whole": (many(A, entry("b"), data=d16), "b.data_offsets"),
    "overlap-inside": (many(A, entry("b", "I8", "[4]", "[4,8]"), data=d16), "b.data_offsets"),
    "empty-inside": (many(A, entry("b", "I8", "[0]", "[8,8]"), data=d16), "b.data_offsets"),
    "empty-at-borders": (many(entry("x", "I8", "[0]", "[0,0]"), A, entry("y", "I8", "[0]", "[16,16]"), data=d16), "ok"),
    "order-reversed": (many(B, A, data=d19), "ok"),
}

manifest = []
for name, (data, expected) in cases.items():
    (fuzz / f"{name}.bin").write_bytes(data)
    try:
        safetensors.deserialize(data)
        upstream = "ok"
    except Exception as error:
        upstream = "refused"
    manifest.append({"file": f"{name}.bin", "expected": expected, "upstream": upstream})
(fuzz / "manifest.json").write_text("[\n" + ",\n".join("  " + json.dumps(row) for row in manifest) + "\n]\n")
for row in manifest:
    if (row["expected"] == "ok") != (row["upstream"] == "ok"):
        print("differs from upstream:", row)
for name, data in upstream_files.items():
    print(f"{name}.safetensors", len(data), hashlib.sha256(data).hexdigest())
print(len(manifest), "broken files,", sum(len(data) for data, _ in cases.values()), "bytes")
