/** A Llama of one layer with random weights and a byte-level tokenizer, as files of a folder. */
import { memorySink } from '@winnow/bytes';
import { writeSafetensors } from '@winnow/safetensors';
import { createRng } from '@winnow/tensor';
import type { JsonTree } from '@winnow/test-utils';

const vocabSize = 260;
const shapes: Readonly<Record<string, readonly number[]>> = {
  'model.embed_tokens.weight': [vocabSize, 8],
  'model.norm.weight': [8],
  'model.layers.0.input_layernorm.weight': [8],
  'model.layers.0.post_attention_layernorm.weight': [8],
  'model.layers.0.self_attn.q_proj.weight': [8, 8],
  'model.layers.0.self_attn.k_proj.weight': [4, 8],
  'model.layers.0.self_attn.v_proj.weight': [4, 8],
  'model.layers.0.self_attn.o_proj.weight': [8, 8],
  'model.layers.0.mlp.gate_proj.weight': [12, 8],
  'model.layers.0.mlp.up_proj.weight': [12, 8],
  'model.layers.0.mlp.down_proj.weight': [8, 12],
};

export const tinyConfig: Readonly<Record<string, JsonTree>> = {
  ...{ model_type: 'llama', hidden_size: 8, intermediate_size: 12, num_hidden_layers: 1, num_attention_heads: 2 },
  ...{ num_key_value_heads: 1, vocab_size: vocabSize, rms_norm_eps: 1e-5, max_position_embeddings: 512 },
  ...{ tie_word_embeddings: true, rope_theta: 10_000, hidden_act: 'silu', eos_token_id: 259, bos_token_id: 258 },
};

/** Bytes as the characters that byte-level BPE shows them as: printable ones stand for themselves. */
function byteCharacters(): string[] {
  let next = 256;
  const isShown = (byte: number): boolean =>
    (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || (byte >= 174 && byte <= 255);
  return Array.from({ length: 256 }, (_, byte) => String.fromCharCode(isShown(byte) ? byte : next++));
}

const added = (id: number, content: string): object => ({
  ...{ id, content, single_word: false, lstrip: false, rstrip: false, normalized: false, special: true },
});

/** Byte-level BPE with two merges. */
export const tinyTokenizer: Readonly<Record<string, unknown>> = {
  version: '1.0',
  added_tokens: [added(258, '<s>'), added(259, '</s>')],
  normalizer: null,
  pre_tokenizer: { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: true },
  post_processor: null,
  decoder: { type: 'ByteLevel', add_prefix_space: true, trim_offsets: true, use_regex: true },
  model: {
    type: 'BPE',
    vocab: Object.fromEntries([...byteCharacters(), 'th', 'the'].map((text, id) => [text, id])),
    merges: ['t h', 'th e'],
  },
};

export const tinyTemplate: string =
  "{% for m in messages %}{{ '<s>' + m.role + ': ' + m.content + '</s>' }}{% endfor %}" +
  '{% if add_generation_prompt %}assistant: {% endif %}';

export async function tinyWeights(): Promise<Uint8Array> {
  const rng = createRng(1);
  const tensors = Object.entries(shapes).map(([name, shape]) => {
    const values = Float32Array.from({ length: shape.reduce((a, b) => a * b, 1) }, () => rng.nextGaussian());
    return { name, dtype: 'f32' as const, shape, data: new Uint8Array(values.buffer) };
  });
  const sink = memorySink();
  await writeSafetensors(sink, { tensors });
  return sink.toBytes().slice();
}

export async function tinyFiles(): Promise<Record<string, Uint8Array | string>> {
  return {
    'config.json': JSON.stringify(tinyConfig),
    'tokenizer.json': JSON.stringify(tinyTokenizer),
    'tokenizer_config.json': JSON.stringify({ bos_token: '<s>', eos_token: '</s>', chat_template: tinyTemplate }),
    'model.safetensors': await tinyWeights(),
  };
}
