/** Models that take images as well as text: the rows of a vision encoder become part of the prompt of a decoder. */
import { Fields } from '../file/fields.js';
import type { Weight } from '../file/weights.js';
import type { ModelDescription, ModelFile, VisionPart } from '../program/architecture.js';
import { describeLlama } from './llama.js';
import { textPartOf, renamedStore, type TextPart } from '../settings/text-part.js';
import { visionShape, withShapes } from '../vision/checkpoint.js';

/** Describes a decoder that takes images. */
export type DescribeDecoder = (file: ModelFile, imageTokenId: number) => Promise<ModelDescription>;

const llamas: Readonly<Record<string, DescribeDecoder>> = { llama: describeLlama, mistral: describeLlama };

/**
 * Describes the decoder and adds the vision encoder to it.
 * @param decoders descriptions of decoders by the `model_type` of `text_config`; the first is the default
 * @param describeVision gets a file without the decoder's tensors, and adds the weights of the vision encoder
 * @throws {FormatError} for a decoder that is not supported with images
 */
export async function describeWithImages(
  file: ModelFile,
  text: TextPart,
  imageTokenId: number,
  describeVision: (vision: ModelFile, weights: Map<string, Weight>, imageTokenId: number) => VisionPart,
  decoders: Readonly<Record<string, DescribeDecoder>> = llamas,
): Promise<ModelDescription> {
  const section = Fields.ofJson(`${file.fields.source}: text_config`, file.fields.raw('text_config') ?? {});
  const kind = section.string('model_type', Object.keys(decoders)[0]);
  const describe = decoders[kind];
  if (describe === undefined) throw section.refusal('model_type', Object.keys(decoders).join(' or '), kind);
  const decoder = await describe(textPartOf(file, text), imageTokenId);
  if (imageTokenId >= decoder.config.vocabSize) {
    throw file.fields.refusal('image_token_id', `a token below ${decoder.config.vocabSize}`, imageTokenId);
  }
  const isVision = (name: string): boolean => text.otherParts.some((prefix) => name.startsWith(prefix));
  const store = renamedStore(file.store, (name) => (isVision(name) ? name : undefined));
  const shaped = { ...file, store: withShapes(store, visionShape) };
  const vision = describeVision(shaped, decoder.weights, imageTokenId);
  checkWindow(decoder, vision, section, 'sliding_window');
  const constants = new Map([...decoder.constants, ...(vision.constants ?? [])]);
  return { ...decoder, constants, vision };
}

/**
 * @param key name of the sliding window in `fields`
 * @throws {FormatError} when an image with bidirectional attention is larger than the sliding window
 */
export function checkWindow(decoder: ModelDescription, vision: VisionPart, fields: Fields, key: string): void {
  const { slidingWindow } = decoder.config;
  if (vision.isBidirectional !== true || slidingWindow === 0 || slidingWindow >= vision.numRows) return;
  throw fields.refusal(key, `at least ${vision.numRows}, the rows of an image`, slidingWindow);
}
