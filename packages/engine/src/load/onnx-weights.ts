/** Weights of a folder with ONNX files, as laid out by transformers.js: `onnx/model.onnx` beside config.json. */
import type { TensorStore } from '@winnow/bytes';
import type { HubFiles } from '@winnow/hub';
import { onnxWeights, openOnnx } from '@winnow/onnx';

/** In order of preference: exact weights first. */
const fileNames: readonly string[] = [
  'model',
  'model_fp16',
  'model_quantized',
  'model_int8',
  'model_uint8',
  'model_q4',
  'model_q4f16',
].flatMap((name) => [`onnx/${name}.onnx`, `${name}.onnx`]);

/**
 * @param wanted the file to take. Default: the first of the common names that exists
 * @returns `undefined` when the folder has none
 * @throws {FormatError} for a broken file, and for one whose matrices cannot be matched with names
 */
export async function openOnnxWeights(
  files: HubFiles,
  wanted: string | undefined,
  options: { readonly signal?: AbortSignal },
): Promise<TensorStore | undefined> {
  const name = wanted ?? (await firstOf(files));
  if (name === undefined) return undefined;
  const folder = name.includes('/') ? name.slice(0, name.lastIndexOf('/') + 1) : '';
  const file = await openOnnx(await files.open(name), {
    openExternal: (location) => files.open(folder + location),
    ...options,
  });
  try {
    return onnxWeights(file);
  } catch (error) {
    await file.close();
    throw error;
  }
}

async function firstOf(files: HubFiles): Promise<string | undefined> {
  for (const name of fileNames) if (await files.has(name)) return name;
  return undefined;
}
