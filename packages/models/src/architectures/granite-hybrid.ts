/**
 * Granite 4 (arXiv:2405.21060 for its Mamba-2 layers): the Granite block, in which most layers have a state-space mixer instead
 * of attention. Attention has no rotary positions; the FFN is dense, or a mixture of experts with a shared expert. Granite 4
 * models without state-space layers have rotary positions and are described by `granite.ts` and `granitemoe.ts`.
 */
import { add, attentionBlock, describeDecoder, rmsNorm, scaled } from '../blocks/decoder-blocks.js';
import { expertTensors, feedForwardOf } from '../blocks/experts.js';
import { rotaryOf } from '../blocks/rotary.js';
import {
  checkedStateSpace,
  stateSpaceFromGguf,
  refuseStateSettings,
  stateSpaceMixer,
  stateSpaceTensors,
  type StateSpaceConfig,
} from '../blocks/state-space.js';
import { collectWeights, type WeightRequest } from '../file/weights.js';
import type { Architecture, ModelFile } from '../program/architecture.js';
import type { DecoderConfig } from '../program/config.js';
import { embedTokens } from '../program/decoder-program.js';
import {
  attentionTensors,
  gatedFfnTensors,
  isDerivedTensor,
  outerTensors,
  preNormTensors,
  settingBias,
  tensorNames,
} from '../program/tensors.js';
import { refuseSettings } from '../settings/config-checks.js';
import { unrotatedFromGguf } from '../settings/gguf-settings.js';
import { unrotatedFromHub } from '../settings/hub-settings.js';
import { kvHeadsByLayer } from '../settings/recurrent-settings.js';
import { ropeFromGguf, ropeFromHub } from '../settings/rope-settings.js';
import { graniteFactors, graniteGgufKeys, graniteHubNames } from './granite-settings.js';
import { graniteExpertNames, graniteExperts } from './granitemoe.js';

const architecture = 'granitehybrid';

interface Settings {
  readonly config: DecoderConfig;
  readonly states: StateSpaceConfig;
}

export const graniteHybrid: Architecture = {
  name: architecture,
  models: 'Granite 4.0 H and Granite 4.0 (nano to small), dense and with experts',
  limits: ['State-space layers have one group, as in all published models.'],
  ggufNames: [architecture],
  hubNames: ['granitemoehybrid'],
  hubClass: 'GraniteMoeHybridForCausalLM',
  preTokenizer: 'dbrx',
  async describe(file) {
    const { config, states } = file.format === 'gguf' ? ofGguf(file) : ofHub(file);
    const { embedding, attention: scale, residual, logits } = graniteFactors(file, { ...config, architecture });
    const weights = collectWeights(file.store, requests(file, config, states), (name) => isDerivedTensor(name, config));
    const rotary = config.rope && rotaryOf(file.fields, config.rope);
    const feedForward = feedForwardOf(config.experts);
    return describeDecoder({
      config: { ...config, neighborsInGguf: true },
      weights,
      rotaries: rotary === undefined ? [] : [rotary],
      embed: (step) => embedTokens(step, embedding),
      norm: rmsNorm,
      layer(step, layer, input) {
        const normed = rmsNorm(step, `blk.${layer}.attn_norm`, input);
        const mixed = hasState(config, layer)
          ? stateSpaceMixer(step, layer, normed, states)
          : attentionBlock(step, layer, normed, { scale, ...(rotary === undefined ? {} : { rotary }) });
        const x = add(step, input, scaled(step, mixed, residual));
        const y = feedForward(step, layer, rmsNorm(step, `blk.${layer}.ffn_norm`, x));
        return add(step, x, scaled(step, y, residual));
      },
      logitScale: 1 / logits,
    });
  },
};

function hasState({ recurrentLayers }: DecoderConfig, layer: number): boolean {
  return recurrentLayers?.[layer] === true;
}

function ofGguf(file: ModelFile): Settings {
  const { fields } = file;
  const key = (name: string): string => `${architecture}.${name}`;
  const { uniform, layersWithout } = kvHeadsByLayer(file, architecture);
  const known = [...graniteGgufKeys, 'expert_count'];
  const plain = unrotatedFromGguf(uniform, { architecture, norm: 'rms', known });
  const isRotated = fields.boolean(key('rope.scaling.finetuned'), false);
  const rope = isRotated && ropeFromGguf(fields, architecture, plain.headDim, 'neighbors', undefined);
  const hasExperts = fields.integer(key('expert_count'), 0) > 0;
  refuseSettings(fields, { [key('ssm.group_count')]: [1] });
  return {
    config: {
      ...plain,
      ...(layersWithout?.includes(true) === true ? { recurrentLayers: layersWithout } : {}),
      ...(rope === false ? {} : { rope }),
      ...(hasExperts ? { experts: graniteExperts(file, plain) } : {}),
    },
    states: stateSpaceFromGguf(fields, architecture),
  };
}

function ofHub(file: ModelFile): Settings {
  const { fields } = file;
  refuseSettings(fields, { mamba_n_groups: [1], mamba_proj_bias: [false], position_embedding_type: ['rope', 'nope'] });
  refuseStateSettings(fields);
  const hasExperts = fields.integer('num_local_experts', 8) > 0;
  // a dense model stores its FFN where the others have the shared expert
  const sizes = hasExperts ? {} : { intermediate_size: fields.count('shared_intermediate_size', 1024) };
  const known = [...graniteHubNames, 'num_local_experts'];
  const plain = unrotatedFromHub({ ...file, fields: fields.with(sizes) }, { architecture, known });
  const recurrentLayers = stateLayers(file, plain.numLayers);
  const isRotated = fields.raw('position_embedding_type') === 'rope';
  const innerDim = fields.count('mamba_expand', 2) * plain.hiddenDim;
  const numHeads = fields.count('mamba_n_heads', 128);
  const isAuto = fields.raw('mamba_d_head') === undefined || fields.raw('mamba_d_head') === 'auto';
  return {
    config: {
      ...plain,
      architecture: recurrentLayers.includes(true) ? architecture : hasExperts ? 'granitemoe' : 'granite',
      ...(recurrentLayers.includes(true) ? { recurrentLayers } : {}),
      ...(isRotated ? { rope: ropeFromHub(fields, plain.headDim, {}) } : {}),
      ...(hasExperts ? { experts: graniteExperts(file, plain) } : {}),
    },
    states: checkedStateSpace(
      fields,
      {
        numHeads,
        headDim: isAuto ? Math.floor(innerDim / numHeads) : fields.count('mamba_d_head'),
        numGroups: 1,
        stateDim: fields.count('mamba_d_state', 256),
        numTaps: fields.count('mamba_d_conv', 4),
      },
      innerDim,
    ),
  };
}

/** The state-space layers of `layer_types`, whose values depend on the version of Transformers; without the setting, all layers. */
function stateLayers({ fields }: ModelFile, numLayers: number): boolean[] {
  const types = fields.raw('layer_types') ?? Array.from({ length: numLayers }, () => 'mamba');
  if (!Array.isArray(types) || types.length !== numLayers) {
    throw fields.refusal('layer_types', `an array of ${numLayers}`, types);
  }
  return types.map((type: unknown) => {
    if (type === 'mamba' || type === 'linear_attention') return true;
    if (type === 'attention' || type === 'full_attention') return false;
    throw fields.refusal('layer_types', 'mamba or attention', type);
  });
}

function* requests(file: ModelFile, config: DecoderConfig, states: StateSpaceConfig): Generator<WeightRequest> {
  const { hiddenDim, ffnDim, experts } = config;
  const names = tensorNames(file);
  const attentionBias = settingBias(file, 'attention_bias');
  yield* outerTensors(file, config, {});
  for (let layer = 0; layer < config.numLayers; layer++) {
    const [own, hub] = [`blk.${layer}`, `model.layers.${layer}`];
    yield* preNormTensors(file, config, layer, {});
    yield* hasState(config, layer)
      ? stateSpaceTensors(file, hiddenDim, states, layer, `${hub}.mamba`)
      : attentionTensors(file, config, layer, { attentionBias });
    if (experts !== undefined) yield* expertTensors(file, config, experts, layer, graniteExpertNames);
    else if (!names.isHub) yield* gatedFfnTensors(file, config, layer, {});
    else {
      const both = `${hub}.shared_mlp.input_linear`;
      yield* names.fused({
        fused: [`${own}.ffn_gate_up`, both],
        parts: [
          [`${own}.ffn_gate`, both, ffnDim],
          [`${own}.ffn_up`, both, ffnDim],
        ],
        numInputs: hiddenDim,
        bias: 'none',
        isSplit: false,
      });
      yield* names.matrix([`${own}.ffn_down`, `${hub}.shared_mlp.output_linear`], [hiddenDim, ffnDim], 'none');
    }
  }
}
