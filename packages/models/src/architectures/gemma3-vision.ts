/**
 * Images of Gemma 3 (arXiv:2503.19786 §2.1): the hidden states of SigLIP's patches, averaged over squares, normalized and
 * projected, `W rms(mean(LN(x)))`, stand for an image in the prompt. The decoder attends in both directions within an image.
 */
import { layerNorm, linear, rmsNorm } from '../blocks/decoder-blocks.js';
import { addWeights, type Weight, type WeightRequest } from '../file/weights.js';
import type { ModelFile, VisionPart } from '../program/architecture.js';
import { tensorNames } from '../program/tensors.js';
import { gridOf, type Tower } from '../vision/checkpoint.js';
import { describeVision, squareOrder, visionTensors } from '../vision/tower.js';
import { gemmaEmbeddingScale } from './gemma-settings.js';
import { siglipVisionDefaults, siglipVisionTower } from './siglip.js';

/** As in `processing_gemma3.py`. */
const imageMarks = {
  marker: '<start_of_image>',
  before: '\n\n<start_of_image>',
  after: '<end_of_image>\n\n',
};

const outerPrefixes = ['', 'model.'];

/** The prefixes of the encoder and of the projector in a Hugging Face checkpoint; `undefined` when it has no encoder. */
function prefixesOf({ store }: ModelFile): { readonly tower: string; readonly projector: string } | undefined {
  for (const outer of outerPrefixes) {
    for (const inner of ['vision_model.', '']) {
      const tower = `${outer}vision_tower.${inner}`;
      const projector = `${outer}multi_modal_projector.`;
      if (store.tensors.has(`${tower}embeddings.patch_embedding.weight`)) return { tower, projector };
    }
  }
  return undefined;
}

/** Whether a checkpoint has an image encoder. */
export function hasGemmaVision(file: ModelFile): boolean {
  return file.format !== 'gguf' && file.fields.has('vision_config') && prefixesOf(file) !== undefined;
}

/** Describes the image encoder. @param weights those of the decoder, to which the encoder's are added */
export function describeGemmaVision(file: ModelFile, weights: Map<string, Weight>, imageTokenId: number): VisionPart {
  const { fields, store } = file;
  const prefixes = prefixesOf(file) ?? { tower: '', projector: '' };
  const tower = siglipVisionTower(file, prefixes.tower, siglipVisionDefaults);
  const { side } = gridOf(tower.fields);
  const numRows = fields.count('mm_tokens_per_image', 256);
  const kernel = side / Math.sqrt(numRows);
  if (!Number.isSafeInteger(kernel)) {
    throw fields.refusal('mm_tokens_per_image', `the square of a divisor of ${side}, the patches per side`, numRows);
  }
  const dim = weights.get('token_embd.weight')?.shape[1] as number;
  const requests = [
    ...visionTensors(file, tower, prefixes.tower, { hasClass: false, hasPostNorm: true }),
    ...projector(file, tower, prefixes.projector, dim),
  ];
  const isUnused = (name: string): boolean => name.endsWith('.position_ids');
  addWeights(weights, store, requests, isUnused);
  return describeVision({
    ...{ tower, weights, hasClass: false, numRows, dim, imageTokenId },
    marks: imageMarks,
    isBidirectional: true,
    embeddingScale: gemmaEmbeddingScale({ hiddenDim: dim }),
    order: squareOrder(side, kernel),
    slots: {
      starts: Int32Array.from({ length: numRows }, (_, row) => row * kernel ** 2),
      lengths: new Int32Array(numRows).fill(kernel ** 2),
    },
    finish(step, hidden, slot) {
      const x = layerNorm(step, 'post_ln', hidden);
      const inputs = { x, starts: slot('starts'), lengths: slot('lengths') };
      const pooled = step.b.activation('pool-rows', inputs, { kind: 'mean' });
      return linear(step, 'mm.input_projection', rmsNorm(step, 'mm.soft_emb_norm', pooled));
    },
  });
}

function projector(file: ModelFile, { config }: Tower, hub: string, dim: number): WeightRequest[] {
  const names = tensorNames(file);
  const { hiddenDim } = config;
  const name = 'v.mm.input_projection.weight';
  const storedName = names.isHub ? `${hub}mm_input_projection_weight` : name;
  return [
    { name, storedName, shape: [dim, hiddenDim], storedAs: 'transposed' },
    ...names.vector(['v.mm.soft_emb_norm', `${hub}mm_soft_emb_norm`], hiddenDim, 'minus-one'),
  ];
}
