/** Decodes with the WebAssembly codecs of Squoosh: a PNG decoder in Rust, mozjpeg and libwebp. */
import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { FormatError } from '@winnow/tensor';
import { readImageHeader } from './header.js';
import { checkSize, maxPixels, withoutAlpha, type DecodeOptions, type ImageFormat, type RgbImage } from './image.js';

/** What the codecs return. */
interface Rgba {
  readonly width: number;
  readonly height: number;
  readonly data: Uint8ClampedArray;
}

type Decode = (bytes: ArrayBuffer) => Promise<Rgba>;

/** A compiled module. */
type Module = object;

const { WebAssembly: wasm } = globalThis as unknown as {
  readonly WebAssembly: { compile(bytes: Uint8Array): Promise<Module> };
};

/** The type declarations of `init` omit the module, which its documentation passes. */
type Init = (module: Module, options: object) => Promise<void>;

const require = createRequire(import.meta.url);
const compiled = new Map<string, Promise<Module>>();

function moduleAt(file: string): Promise<Module> {
  let module = compiled.get(file);
  if (module === undefined) {
    module = readFile(require.resolve(file)).then((bytes) => wasm.compile(bytes));
    compiled.set(file, module);
  }
  return module;
}

/** A new instance per image for the codecs in C: they do not survive a broken file, and their memory never shrinks. */
const codecs: Readonly<Record<ImageFormat, () => Promise<Decode>>> = {
  async png() {
    const { decode, init } = await import('@jsquash/png/decode.js');
    await (init as (module: Module) => Promise<unknown>)(await moduleAt('@jsquash/png/codec/pkg/squoosh_png_bg.wasm'));
    return decode;
  },
  async jpeg() {
    const { default: decode, init } = await import('@jsquash/jpeg/decode.js');
    const module = await moduleAt('@jsquash/jpeg/codec/dec/mozjpeg_dec.wasm');
    return (bytes) => {
      void (init as Init)(module, quiet);
      return decode(bytes, { preserveOrientation: true });
    };
  },
  async webp() {
    const { default: decode, init } = await import('@jsquash/webp/decode.js');
    const module = await moduleAt('@jsquash/webp/codec/dec/webp_dec.wasm');
    return (bytes) => {
      void (init as Init)(module, quiet);
      return decode(bytes);
    };
  },
};

/** Resolves when the latest image is decoded. */
let latest: Promise<unknown> = Promise.resolve();

/** Decodes one image at a time, because each may take hundreds of megabytes. */
function inTurn(task: () => Promise<Rgba>): Promise<Rgba> {
  const turn = latest.then(task);
  latest = turn.catch(() => undefined);
  return turn;
}

/** Keeps the codecs from printing errors, which are thrown. */
const quiet = { print: () => undefined, printErr: () => undefined };

/**
 * Decodes a PNG, JPEG or WebP file as Pillow does: 8 bits per channel, the EXIF orientation of a JPEG applied, alpha
 * dropped. Concurrent calls take turns.
 * @throws {FormatError} for another format and a broken file
 * @throws {CapacityError} for an image of more than `maxPixels`, before it is decoded
 */
export async function decodeImage(bytes: Uint8Array, options: DecodeOptions = {}): Promise<RgbImage> {
  const { name = 'image' } = options;
  const { format } = readImageHeader(bytes, options);
  const decode = await codecs[format]();
  let decoded: Rgba;
  try {
    // a copy: `slice` of a Buffer is a view of memory that others share
    decoded = await inTurn(() => decode(new Uint8Array(bytes).buffer));
  } catch (cause) {
    const message = `expected a ${format.toUpperCase()} file, got one that its decoder refuses`;
    throw new FormatError({ source: name, field: 'image data', message }, { cause });
  }
  const { width, height, data } = decoded;
  checkSize(name, width, height, options.maxPixels ?? maxPixels);
  return withoutAlpha(width, height, data, name);
}
