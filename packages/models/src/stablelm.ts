/**
 * StableLM (Zephyr 3B, 2 1.6B, 2 12B): pre-norm blocks with LayerNorm and a gated FFN, rotary pairs in halves over a
 * part of each head, optional biases of q, k and v. A block without a norm of the FFN is parallel,
 * `n = ln(x); x += attn(n) + ffn(n)`; the 12B model also norms each head of q and of k, each with its own weights.
 */
import type { ProgramTensor } from '@winnow/ops';
import type { Architecture, ModelFile } from './architecture.js';
import {
  add,
  attentionBlock,
  describeDecoder,
  gatedFeedForward,
  layerNorm,
  preNormLayer,
  type AttentionOptions,
} from './decoder-blocks.js';
import type { RotaryDecoderConfig } from './decoder-config.js';
import {
  attentionTensors,
  gatedFfnTensors,
  isDerivedTensor,
  outerTensors,
  preNormTensors,
  usualNorm,
  type UsualTensors,
} from './decoder-tensors.js';
import { configFromGguf } from './gguf-settings.js';
import { configFromHub } from './hub-settings.js';
import { rotaryOf } from './rotary.js';
import { collectWeights, type WeightRequest } from './weights.js';

interface Variant {
  readonly isParallel: boolean;
  readonly hasHeadNorms: boolean;
}

export const stablelm: Architecture = {
  name: 'stablelm',
  ggufNames: ['stablelm'],
  hubNames: ['stablelm'],
  async describe(file) {
    const config = await configOf(file);
    const variant = variantOf(file);
    const tensors = requests(file, config, variant);
    const weights = collectWeights(file.store, tensors, (name) => isDerivedTensor(name, config));
    const rotary = rotaryOf(file.fields, config.rope);
    const attention: AttentionOptions = { rotary };
    return describeDecoder({
      config,
      weights,
      rotaries: [rotary],
      norm: layerNorm,
      layer: variant.isParallel
        ? (step, layer, x): ProgramTensor => {
            const normed = layerNorm(step, `blk.${layer}.attn_norm`, x);
            const attended = attentionBlock(step, layer, normed, attention);
            return add(step, add(step, x, attended), gatedFeedForward(step, layer, normed));
          }
        : preNormLayer({ norm: layerNorm, attention: () => attention }),
    });
  },
};

/** GGUF files show by their tensors what config.json says in words. */
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
  }
}
