/**
 * StableLM (Zephyr 3B, 2 1.6B, 2 12B): pre-norm blocks with LayerNorm and a SwiGLU FFN, split-half rotary pairs over
 * part of each head, optional biases of q, k and v. A block without an FFN norm is parallel, `n = ln(x); x += attn(n) +
 * ffn(n)`; the 12B model also normalizes each head of q and k, with separate weights per head.
 */
import type { ProgramTensor } from '@winnow/ops';
import {
  add,
  attentionBlock,
  describeDecoder,
  gatedFeedForward,
  layerNorm,
  preNormLayer,
  rowPerToken,
  type AttentionOptions,
} from '../blocks/decoder-blocks.js';
import { rotaryOf } from '../blocks/rotary.js';
import { collectWeights, type WeightRequest } from '../file/weights.js';
import type { Architecture, ModelFile } from '../program/architecture.js';
import type { RotaryDecoderConfig } from '../program/config.js';
import type { DecoderStep } from '../program/decoder-program.js';
import {
  attentionTensors,
  gatedFfnTensors,
  isDerivedTensor,
  outerTensors,
  preNormTensors,
  usualNorm,
  type UsualTensors,
} from '../program/tensors.js';
import { configFromGguf } from '../settings/gguf-settings.js';
import { configFromHub } from '../settings/hub-settings.js';

interface Variant {
  readonly isParallel: boolean;
  readonly hasHeadNorms: boolean;
}

export const stablelm: Architecture = {
  name: 'stablelm',
  models: 'StableLM 3B 4E1T, Zephyr 3B, StableLM 2 1.6B and 12B',
  ggufNames: ['stablelm'],
  hubNames: ['stablelm'],
  hubClass: 'StableLmForCausalLM',
  preTokenizer: 'stablelm2',
  async describe(file) {
    const config = await configOf(file);
    const variant = variantOf(file);
    const tensors = requests(file, config, variant);
    const weights = collectWeights(file.store, tensors, (name) => isDerivedTensor(name, config));
    const rotary = rotaryOf(file.fields, config.rope);
    const attention = (step: DecoderStep): AttentionOptions =>
      variant.hasHeadNorms ? { rotary, normalizeHeads: (name, heads) => normEachHead(step, name, heads) } : { rotary };
    return describeDecoder({
      config,
      weights,
      rotaries: [rotary],
      constants: variant.hasHeadNorms ? [[onesName, new Float32Array(config.headDim).fill(1)]] : [],
      norm: layerNorm,
      layer: variant.isParallel
        ? (step, layer, x): ProgramTensor => {
            const normed = layerNorm(step, `blk.${layer}.attn_norm`, x);
            const attended = attentionBlock(step, layer, normed, attention(step));
            return add(step, add(step, x, attended), gatedFeedForward(step, layer, normed));
          }
        : preNormLayer({ norm: layerNorm, attention: (_layer, step) => attention(step) }),
    });
  },
};

/** Name of the constant of ones for a norm without weights. */
const onesName = 'norm.ones';

/** Normalizes every head `[T, N, H]` and multiplies by per-head weights `[N, H]`. */
function normEachHead(step: DecoderStep, name: string, heads: ProgramTensor): ProgramTensor {
  const { b, config, weight, constant } = step;
  const x = b.activation('layer-norm', { x: heads, weight: constant(onesName) }, { eps: config.normEps });
  const rows = rowPerToken(step, weight(`${name}_norm.weight`));
  return b.activation('multiply', { a: x, b: b.reshape(rows, heads.shape) });
}

/** GGUF files imply by the presence of tensors what config.json declares. */
function variantOf({ format, fields, store }: ModelFile): Variant {
  if (format === 'gguf') {
    return {
      isParallel: !store.tensors.has('blk.0.ffn_norm.weight'),
      hasHeadNorms: store.tensors.has('blk.0.attn_q_norm.weight'),
    };
  }
  return {
    isParallel: fields.boolean('use_parallel_residual', false),
    hasHeadNorms: fields.boolean('qk_layernorm', false),
  };
}

async function configOf(file: ModelFile): Promise<RotaryDecoderConfig> {
  if (file.format === 'gguf') return configFromGguf(file, { architecture: 'stablelm', norm: 'layer' });
  return configFromHub(file, {
    architecture: 'stablelm',
    epsilon: ['layer_norm_eps', 1e-5],
    contextLength: 4096,
    rope: { share: 0.25 },
    known: ['qk_layernorm', 'use_parallel_residual'],
  });
}

function* requests(file: ModelFile, config: RotaryDecoderConfig, variant: Variant): Generator<WeightRequest> {
  const { format, fields } = file;
  const isBiased = format === 'safetensors' && fields.boolean('use_qkv_bias', false);
  const usual: UsualTensors = {
    attentionBias: isBiased ? 'required' : 'optional',
    outputBias: 'optional',
    normBias: 'required',
  };
  yield* outerTensors(file, config, usual);
  for (let layer = 0; layer < config.numLayers; layer++) {
    if (variant.isParallel) {
      const names = [`blk.${layer}.attn_norm`, `model.layers.${layer}.input_layernorm`] as const;
      yield* usualNorm(file, names, config.hiddenDim, usual);
    } else {
      yield* preNormTensors(file, config, layer, usual);
    }
    yield* attentionTensors(file, config, layer, usual);
    yield* gatedFfnTensors(file, config, layer, usual);
    if (variant.hasHeadNorms) yield* headNorms(file, config, layer);
  }
}

function headNorms({ format }: ModelFile, config: RotaryDecoderConfig, layer: number): WeightRequest[] {
  const counts = { q: config.numHeads, k: config.numKvHeads };
  return Object.entries(counts).map(([which, numHeads]) => {
    const name = `blk.${layer}.attn_${which}_norm.weight`;
    const shape = [numHeads, config.headDim];
    if (format === 'gguf') return { name, storedName: name, shape };
    const norms = `model.layers.${layer}.self_attn.${which}_layernorm.norms`;
    const stackOf = Array.from({ length: numHeads }, (_, head) => `${norms}.${head}.weight`);
    return { name, storedName: norms, shape, stackOf };
  });
}
