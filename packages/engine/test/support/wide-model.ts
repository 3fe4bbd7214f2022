/** In-memory models with random weights that are mostly FFN, as large models are. */
import { memorySink } from '@winnow/bytes';
import { memoryFolder, type HubFiles } from '@winnow/hub';
import { writeSafetensors } from '@winnow/safetensors';
import { createRng } from '@winnow/tensor';

const [hidden, numHeads, headDim, vocabSize, numLayers] = [128, 4, 32, 48, 2];

export interface WideModel {
  readonly files: HubFiles;
  /** Size of the weights. */
  readonly sizeBytes: number;
}

async function folder(
  shapes: Readonly<Record<string, readonly number[]>>,
  files: Readonly<Record<string, object>>,
): Promise<WideModel> {
  const rng = createRng(17);
  const tensors = Object.entries(shapes).map(([name, shape]) => {
    const size = shape.reduce((a, b) => a * b, 1);
    // norm weights are 1, biases small
    const isNorm = /norm/i.test(name) && name.endsWith('weight');
    const factor = shape.length === 1 ? 0.1 : 1 / Math.sqrt(shape[1] as number);
    const values = new Float32Array(size).fill(1);
    // uniform values of variance 1: Gaussian ones take longer to draw than the models take to run
    if (!isNorm) for (let i = 0; i < size; i++) values[i] = factor * Math.sqrt(3) * (2 * rng.nextFloat() - 1);
    return { name, dtype: 'f32' as const, shape, data: new Uint8Array(values.buffer) };
  });
  const sink = memorySink();
  await writeSafetensors(sink, { tensors });
  const texts = Object.entries(files).map(([name, value]) => [name, JSON.stringify(value)]);
  const bytes = sink.toBytes();
  return {
    files: memoryFolder({ 'model.safetensors': bytes, ...Object.fromEntries(texts) }),
    sizeBytes: bytes.length,
  };
}

const made = new Map<string, Promise<WideModel>>();

/** A Llama model without a tokenizer, made once per size and activation. */
export function wideLlama(ffn: number, activation: 'silu' | 'relu'): Promise<WideModel> {
  const key = `${ffn} ${activation}`;
  const model = made.get(key) ?? makeLlama(ffn, activation);
  made.set(key, model);
  return model;
}

async function makeLlama(ffn: number, activation: 'silu' | 'relu'): Promise<WideModel> {
  const shapes: Record<string, number[]> = {
    'model.embed_tokens.weight': [vocabSize, hidden],
    'model.norm.weight': [hidden],
    'lm_head.weight': [vocabSize, hidden],
  };
  for (let layer = 0; layer < numLayers; layer++) {
    const name = (part: string): string => `model.layers.${layer}.${part}.weight`;
    shapes[name('input_layernorm')] = [hidden];
    shapes[name('post_attention_layernorm')] = [hidden];
    for (const part of ['q', 'k', 'v', 'o']) shapes[name(`self_attn.${part}_proj`)] = [hidden, hidden];
    shapes[name('mlp.gate_proj')] = [ffn, hidden];
    shapes[name('mlp.up_proj')] = [ffn, hidden];
    shapes[name('mlp.down_proj')] = [hidden, ffn];
  }
  const config = {
    model_type: 'llama',
    hidden_act: activation,
    hidden_size: hidden,
    intermediate_size: ffn,
    num_hidden_layers: numLayers,
    num_attention_heads: numHeads,
    num_key_value_heads: numHeads,
    head_dim: headDim,
    vocab_size: vocabSize,
    rms_norm_eps: 1e-5,
    max_position_embeddings: 1024,
  };
  return folder(shapes, { 'config.json': config });
}

/** `tokenizer.json` of a BERT; the first five words are special tokens, `[CLS]` and `[SEP]` the third and fourth. */
export function wordPieceTokenizer(words: readonly string[]): object {
  const special = (id: string, at: number): object => ({ id, ids: [at], tokens: [id] });
  return {
    model: {
      type: 'WordPiece',
      unk_token: '[UNK]',
      continuing_subword_prefix: '##',
      max_input_chars_per_word: 100,
      vocab: Object.fromEntries(words.map((word, id) => [word, id])),
    },
    pre_tokenizer: { type: 'BertPreTokenizer' },
    post_processor: {
      type: 'TemplateProcessing',
      single: [
        { SpecialToken: { id: '[CLS]', type_id: 0 } },
        { Sequence: { id: 'A', type_id: 0 } },
        { SpecialToken: { id: '[SEP]', type_id: 0 } },
      ],
      pair: [],
      special_tokens: { '[CLS]': special('[CLS]', 2), '[SEP]': special('[SEP]', 3) },
    },
    added_tokens: words.slice(0, 5).map((content, id) => ({ id, content, special: true })),
  };
}

/** A BERT whose FFNs have two matrices with biases, made once per size; its words are `a` to `z`. */
export function wideBert(ffn: number): Promise<WideModel> {
  const key = `${ffn} BERT`;
  const model = made.get(key) ?? makeBert(ffn);
  made.set(key, model);
  return model;
}

async function makeBert(ffn: number): Promise<WideModel> {
  const words = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', ...'abcdefghijklmnopqrstuvwxyz'];
  const shapes: Record<string, number[]> = {
    'embeddings.word_embeddings.weight': [words.length, hidden],
    'embeddings.position_embeddings.weight': [64, hidden],
    'embeddings.token_type_embeddings.weight': [2, hidden],
    'embeddings.LayerNorm.weight': [hidden],
    'embeddings.LayerNorm.bias': [hidden],
  };
  const add = (name: string, rows: number, columns: number): void => {
    shapes[`${name}.weight`] = [rows, columns];
    shapes[`${name}.bias`] = [rows];
  };
  for (let layer = 0; layer < numLayers; layer++) {
    const prefix = `encoder.layer.${layer}.`;
    for (const part of ['query', 'key', 'value']) add(`${prefix}attention.self.${part}`, hidden, hidden);
    add(`${prefix}attention.output.dense`, hidden, hidden);
    add(`${prefix}intermediate.dense`, ffn, hidden);
    add(`${prefix}output.dense`, hidden, ffn);
    for (const part of ['attention.output', 'output']) {
      shapes[`${prefix}${part}.LayerNorm.weight`] = [hidden];
      shapes[`${prefix}${part}.LayerNorm.bias`] = [hidden];
    }
  }
  const config = {
    model_type: 'bert',
    hidden_act: 'gelu',
    hidden_size: hidden,
    intermediate_size: ffn,
    num_hidden_layers: numLayers,
    num_attention_heads: numHeads,
    vocab_size: words.length,
    type_vocab_size: 2,
    layer_norm_eps: 1e-12,
    max_position_embeddings: 64,
  };
  return folder(shapes, { 'config.json': config, 'tokenizer.json': wordPieceTokenizer(words) });
}
