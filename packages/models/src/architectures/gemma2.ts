/**
 * Gemma 2 (arXiv:2408.00118): sandwich norms, `x += rms(attn(rms(x))); x += rms(ffn(rms(x)))`, every other layer local,
 * attention logits and final logits soft-capped by `cap * tanh(x / cap)`, GeGLU, embeddings times `sqrt(hiddenDim)`.
 */
import { describeDecoder, rmsNorm } from '../blocks/decoder-blocks.js';
import { rotaryOf } from '../blocks/rotary.js';
import { collectWeights } from '../file/weights.js';
import type { Architecture, ModelFile } from '../program/architecture.js';
import { windowOf, type RotaryDecoderConfig } from '../program/config.js';
import { embedTokens } from '../program/decoder-program.js';
import { isDerivedTensor, settingBias } from '../program/tensors.js';
import { capOf } from '../settings/config-checks.js';
import { configFromGguf } from '../settings/gguf-settings.js';
import { configFromHub, windowedLayersOf } from '../settings/hub-settings.js';
import {
  gemmaEmbeddingScale,
  gemmaGgufScale,
  gemmaHub,
  gemmaHubScale,
  windowedByPeriod,
  withGgufWindow,
} from './gemma-settings.js';
import { gemmaNorms, sandwichLayer, sandwichTensors } from './sandwich-blocks.js';

/** Number of layers of the 27B model, which has a different attention scale. */
const depthOf27B = 46;
const period = 2;
const caps = ['attn_logit_softcapping', 'final_logit_softcapping'] as const;

interface Gemma2Settings {
  readonly config: RotaryDecoderConfig;
  readonly scale: number;
  readonly attentionCap: number;
  readonly finalCap: number;
}

export const gemma2: Architecture = {
  name: 'gemma2',
  models: 'Gemma 2',
  limits: ['GGUF files have no key for the attention scale: a model with 46 layers gets the scale of the 27B model.'],
  ggufNames: ['gemma2'],
  hubNames: ['gemma2'],
  hubClass: 'Gemma2ForCausalLM',
  async describe(file) {
    const { config, scale, attentionCap, finalCap } = file.format === 'gguf' ? await ofGguf(file) : ofHub(file);
    const bias = settingBias(file, 'attention_bias');
    const tensors = sandwichTensors(file, config, { attentionBias: bias, normsLackOne: true }, gemmaNorms);
    const weights = collectWeights(file.store, tensors, (name) => isDerivedTensor(name, config));
    const rotary = rotaryOf(file.fields, config.rope);
    return describeDecoder({
      config,
      weights,
      rotaries: [rotary],
      embed: (step) => embedTokens(step, gemmaEmbeddingScale(config)),
      norm: rmsNorm,
      layer: sandwichLayer((layer) => ({ rotary, scale, softCap: attentionCap, window: windowOf(config, layer) })),
      softCap: finalCap,
    });
  },
};

async function ofGguf(file: ModelFile): Promise<Gemma2Settings> {
  const { fields } = file;
  const gguf = { architecture: 'gemma2', norm: 'rms', activation: 'gelu_pytorch_tanh', known: caps } as const;
  const config = withGgufWindow(fields, await configFromGguf(file, gguf), { window: 4096, period });
  return {
    config,
    scale: gemmaGgufScale(config, depthOf27B),
    attentionCap: capOf(fields, 'gemma2.attn_logit_softcapping', 50),
    finalCap: capOf(fields, 'gemma2.final_logit_softcapping', 30),
  };
}

function ofHub(file: ModelFile): Gemma2Settings {
  const { fields } = file;
  const config = configFromHub(file, { ...gemmaHub(fields, 'gemma2'), known: caps });
  const windowedLayers = windowedLayersOf(fields, config.numLayers) ?? windowedByPeriod(config, period);
  const slidingWindow = fields.isNull('sliding_window') ? 0 : fields.integer('sliding_window', 4096);
  return {
    config: { ...config, slidingWindow, windowedLayers },
    scale: gemmaHubScale(fields),
    attentionCap: capOf(fields, 'attn_logit_softcapping', 50),
    finalCap: capOf(fields, 'final_logit_softcapping', 30),
  };
}
