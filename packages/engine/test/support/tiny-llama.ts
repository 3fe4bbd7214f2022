/** An in-memory Llama model of two layers with random weights; its heads of 32 can be stored in every dtype. */
import { memorySink } from '@winnow/bytes';
import { memoryFolder, type HubFiles } from '@winnow/hub';
import { writeSafetensors } from '@winnow/safetensors';
import { createRng } from '@winnow/tensor';

const [hidden, ffn, numHeads, numKvHeads, headDim] = [32, 48, 4, 2, 32];

type Config = Readonly<Record<string, unknown>>;
type Change = (name: string, values: Float32Array) => void;

const made = new Map<string, Promise<HubFiles>>();

/**
 * Made once per configuration, unless values are changed.
 * @param change changes the values of a tensor in place
 */
export function tinyLlama(config: Config = {}, change?: Change): Promise<HubFiles> {
  if (change !== undefined) return makeLlama(config, change);
  const key = JSON.stringify(config);
  const model = made.get(key) ?? makeLlama(config, () => {});
  made.set(key, model);
  return model;
}

async function makeLlama(config: Config, change: Change): Promise<HubFiles> {
  const rng = createRng(7);
  const vocabSize = Number(config['vocab_size'] ?? 60);
  const shapes: Record<string, number[]> = {
    'model.embed_tokens.weight': [vocabSize, hidden],
    'model.norm.weight': [hidden],
    'lm_head.weight': [vocabSize, hidden],
  };
  for (let layer = 0; layer < 2; layer++) {
    const name = (part: string): string => `model.layers.${layer}.${part}.weight`;
    shapes[name('input_layernorm')] = [hidden];
    shapes[name('post_attention_layernorm')] = [hidden];
    shapes[name('self_attn.q_proj')] = [numHeads * headDim, hidden];
    shapes[name('self_attn.k_proj')] = [numKvHeads * headDim, hidden];
    shapes[name('self_attn.v_proj')] = [numKvHeads * headDim, hidden];
    shapes[name('self_attn.o_proj')] = [hidden, numHeads * headDim];
    shapes[name('mlp.gate_proj')] = [ffn, hidden];
    shapes[name('mlp.up_proj')] = [ffn, hidden];
    shapes[name('mlp.down_proj')] = [hidden, ffn];
  }
  const tensors = Object.entries(shapes).map(([name, shape]) => {
    const size = shape.reduce((a, b) => a * b, 1);
    const factor = shape.length === 1 ? 1 : 1 / Math.sqrt(shape[1] as number);
    const values = Float32Array.from({ length: size }, () => (shape.length === 1 ? 1 : factor * rng.nextGaussian()));
    change(name, values);
    return { name, dtype: 'f32' as const, shape, data: new Uint8Array(values.buffer) };
  });
  const sink = memorySink();
  await writeSafetensors(sink, { tensors });
  const settings = {
    model_type: 'llama',
    hidden_size: hidden,
    intermediate_size: ffn,
    num_hidden_layers: 2,
    num_attention_heads: numHeads,
    num_key_value_heads: numKvHeads,
    head_dim: headDim,
    vocab_size: vocabSize,
    rms_norm_eps: 1e-5,
    max_position_embeddings: 4096,
    ...config,
  };
  return memoryFolder({ 'config.json': JSON.stringify(settings), 'model.safetensors': sink.toBytes() });
}
