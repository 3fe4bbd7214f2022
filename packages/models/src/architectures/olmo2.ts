/**
 * OLMo 2 (arXiv:2501.00656) and OLMo 3 (arXiv:2512.13961): norms after attention and FFN instead of before,
 * `x += rms(attn(x)); x += rms(ffn(x))`, an RMS norm over the whole q and k vectors before RoPE, split-half rotary pairs.
 * OLMo 3 has a sliding window in three of four layers, whose RoPE is not scaled.
 */
import {
  add,
  attentionBlock,
  describeDecoder,
  gatedFeedForward,
  rmsNorm,
  type DecoderDesign,
} from '../blocks/decoder-blocks.js';
import { localRotaries } from '../blocks/rotary.js';
import { collectWeights, type WeightRequest } from '../file/weights.js';
import type { Architecture, ModelFile } from '../program/architecture.js';
import { windowOf, type RopeConfig, type RotaryDecoderConfig } from '../program/config.js';
import {
  attentionTensors,
  gatedFfnTensors,
  isDerivedTensor,
  outerTensors,
  settingBias,
  usualNorm,
  type UsualTensors,
} from '../program/tensors.js';
import { configFromGguf } from '../settings/gguf-settings.js';
import { configFromHub, windowedLayersOf } from '../settings/hub-settings.js';
import { hasRopeByLayerType, ropeFromHub } from '../settings/rope-settings.js';
import { windowedByPeriod, withGgufWindow } from './gemma-settings.js';
import { allHeadsNormTensors, normAllHeads } from './olmo-blocks.js';

/** Every fourth layer of OLMo 3 has full attention. */
const period = 4;

interface Olmo2Settings {
  readonly config: RotaryDecoderConfig;
  /** RoPE of the layers with a sliding window. */
  readonly localRope: RopeConfig;
}

export const olmo2: Architecture = {
  name: 'olmo2',
  models: 'OLMo 2, OLMo 3',
  ggufNames: ['olmo2'],
  hubNames: ['olmo2', 'olmo3'],
  hubClass: 'Olmo2ForCausalLM',
  preTokenizer: 'dbrx',
  async describe(file) {
    const { config, localRope } = file.format === 'gguf' ? await ofGguf(file) : ofHub(file);
    const weights = collectWeights(file.store, requests(file, config), (name) => isDerivedTensor(name, config));
    const { rotaries, rotaryOfLayer } = localRotaries(file.fields, config, localRope);
    const layer: DecoderDesign['layer'] = (step, index, input) => {
      const at = `blk.${index}`;
      const attended = attentionBlock(step, index, input, {
        rotary: rotaryOfLayer(index),
        window: windowOf(config, index),
        normalizeHeads: (name, heads) => normAllHeads(step, name, heads),
      });
      const x = add(step, input, rmsNorm(step, `${at}.post_attention_norm`, attended));
      return add(step, x, rmsNorm(step, `${at}.post_ffw_norm`, gatedFeedForward(step, index, x)));
    };
    return describeDecoder({ config, weights, rotaries, norm: rmsNorm, layer });
  },
};

async function ofGguf(file: ModelFile): Promise<Olmo2Settings> {
  const { fields } = file;
  const base = await configFromGguf(file, { architecture: 'olmo2', norm: 'rms' });
  const config = withGgufWindow(fields, base, { window: 0, period });
  const { layout, rotaryDim, base: usual } = config.rope;
  return { config, localRope: { layout, rotaryDim, base: fields.number('olmo2.rope.freq_base_swa', usual) } };
}

function ofHub(file: ModelFile): Olmo2Settings {
  const { fields } = file;
  const isOlmo3 = fields.string('model_type') === 'olmo3';
  const config = configFromHub(file, {
    architecture: 'olmo2',
    epsilon: ['rms_norm_eps', 1e-5],
    rope: isOlmo3 ? { base: 500_000, layerType: 'full_attention' } : {},
  });
  if (!isOlmo3) return { config, localRope: config.rope };
  const { layout, rotaryDim, base } = config.rope;
  const windowedLayers = windowedLayersOf(fields, config.numLayers) ?? windowedByPeriod(config, period);
  const slidingWindow = fields.isNull('sliding_window') ? 0 : fields.count('sliding_window', 4096);
  return {
    config: { ...config, slidingWindow, windowedLayers },
    localRope: hasRopeByLayerType(fields, 'sliding_attention')
      ? ropeFromHub(fields, config.headDim, { base, layerType: 'sliding_attention' })
      : { layout, rotaryDim, base },
  };
}

function* requests(file: ModelFile, config: RotaryDecoderConfig): Generator<WeightRequest> {
  const usual: UsualTensors = { attentionBias: settingBias(file, 'attention_bias') };
  yield* outerTensors(file, config, usual);
  for (let layer = 0; layer < config.numLayers; layer++) {
    const [own, hub] = [`blk.${layer}`, `model.layers.${layer}`];
    const norms = [
      ['post_attention_norm', 'post_attention_layernorm'],
      ['post_ffw_norm', 'post_feedforward_layernorm'],
    ] as const;
    for (const [name, hubName] of norms) {
      yield* usualNorm(file, [`${own}.${name}`, `${hub}.${hubName}`], config.hiddenDim, usual);
    }
    yield* attentionTensors(file, config, layer, usual);
    yield* allHeadsNormTensors(file, config, layer);
    yield* gatedFfnTensors(file, config, layer, usual);
  }
}
