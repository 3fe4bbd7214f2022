/** Models that take images beside text: a vision encoder whose projected rows stand in the prompt of a decoder. */
import { Fields } from '../file/fields.js';
import type { Weight } from '../file/weights.js';
import type { ModelDescription, ModelFile, VisionPart } from '../program/architecture.js';
import { describeLlama } from './llama.js';
import { textPartOf, renamedStore, type TextPart } from '../settings/text-part.js';
import { visionShape, withShapes } from '../vision/checkpoint.js';

/** Decoders by the `model_type` of `text_config`. */
const decoders: Readonly<Record<string, typeof describeLlama>> = { llama: describeLlama, mistral: describeLlama };

/**
 * Describes the decoder and adds the vision encoder to it.
 * @param describeVision reads the tensors of the vision encoder from a file without the decoder's, and adds its weights
 * @throws {FormatError} for a decoder that is not supported with images
 */
export async function describeWithImages(
  file: ModelFile,
  text: TextPart,
  imageTokenId: number,
  describeVision: (vision: ModelFile, weights: Map<string, Weight>, imageTokenId: number) => VisionPart,
): Promise<ModelDescription> {
  const section = Fields.ofJson(`${file.fields.source}: text_config`, file.fields.raw('text_config') ?? {});
  const kind = section.string('model_type', 'llama');
  const describe = decoders[kind];
  if (describe === undefined) throw section.refusal('model_type', Object.keys(decoders).join(' or '), kind);
  const decoder = await describe(textPartOf(file, text), imageTokenId);
  if (imageTokenId >= decoder.config.vocabSize) {
    throw file.fields.refusal('image_token_id', `a token below ${decoder.config.vocabSize}`, imageTokenId);
  }
  const isVision = (name: string): boolean => text.otherParts.some((prefix) => name.startsWith(prefix));
  const store = renamedStore(file.store, (name) => (isVision(name) ? name : undefined));
  const shaped = { ...file, store: withShapes(store, visionShape) };
  return { ...decoder, vision: describeVision(shaped, decoder.weights, imageTokenId) };
}
