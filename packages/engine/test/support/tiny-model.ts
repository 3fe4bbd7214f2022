/** In-memory Llama models of any size with random weights, and test doubles that count or fail. */
import { memorySink, type ByteSource } from '@winnow/bytes';
import { memoryFolder, type HubFiles } from '@winnow/hub';
import type { Backend, Executable } from '@winnow/ops';
import { writeSafetensors } from '@winnow/safetensors';
import { createRng } from '@winnow/tensor';

export interface TinyModelOptions {
  readonly vocabSize?: number;
  /** Additional entries of config.json. */
  readonly config?: Readonly<Record<string, unknown>>;
  /** Additional files of the folder; objects are written as JSON. */
  readonly files?: Readonly<Record<string, object>>;
}

/** A Hugging Face folder: one layer, two heads of 4, no tokenizer unless `files` holds one. */
export async function tinyFolder({
  vocabSize = 20,
  config = {},
  files = {},
}: TinyModelOptions = {}): Promise<HubFiles> {
  const rng = createRng(1);
  const shapes: Record<string, number[]> = {
    'model.embed_tokens.weight': [vocabSize, 8],
    'model.norm.weight': [8],
    'lm_head.weight': [vocabSize, 8],
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
  const tensors = Object.entries(shapes).map(([name, shape]) => {
    const values = Float32Array.from({ length: shape.reduce((a, b) => a * b, 1) }, () => rng.nextGaussian());
    return { name, dtype: 'f32' as const, shape, data: new Uint8Array(values.buffer) };
  });
  const sink = memorySink();
  await writeSafetensors(sink, { tensors });
  const settings = {
    model_type: 'llama',
    hidden_size: 8,
    intermediate_size: 12,
    num_hidden_layers: 1,
    num_attention_heads: 2,
    num_key_value_heads: 1,
    vocab_size: vocabSize,
    rms_norm_eps: 1e-5,
    max_position_embeddings: 512,
    ...config,
  };
  const texts = Object.entries(files).map(([name, value]) => [name, JSON.stringify(value)]);
  return memoryFolder({
    'config.json': JSON.stringify(settings),
    'model.safetensors': sink.toBytes(),
    ...Object.fromEntries(texts),
  });
}

/** A tokenizer.json whose tokens are these words; `special` ones are control tokens. */
export function wordTokenizer(words: readonly string[], special: readonly string[] = []): object {
  return {
    version: '1.0',
    added_tokens: [...special].map((content) => ({
      id: words.indexOf(content),
      content,
      special: true,
      normalized: false,
      single_word: false,
      lstrip: false,
      rstrip: false,
    })),
    normalizer: null,
    pre_tokenizer: { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: true },
    post_processor: null,
    decoder: { type: 'ByteLevel', add_prefix_space: true, trim_offsets: true, use_regex: true },
    model: { type: 'BPE', vocab: Object.fromEntries(words.map((word, id) => [word, id])), merges: [] },
  };
}

/** Counts opened and closed sources. */
export interface Handles {
  opened: number;
  closed: number;
  /** Number of sources closed more than once. */
  closedAgain: number;
}

/** Counts a source; reads at or beyond `failAt` fail. */
export function countedSource(source: ByteSource, handles: Handles): ByteSource {
  handles.opened++;
  let isOpen = true;
  return {
    name: source.name,
    sizeBytes: source.sizeBytes,
    read: (...call) => source.read(...call),
    async close() {
      if (isOpen) handles.closed++;
      else handles.closedAgain++;
      isOpen = false;
      await source.close();
    },
  };
}

export function countedFolder(files: HubFiles, handles: Handles): HubFiles {
  return {
    name: files.name,
    list: () => files.list(),
    has: (name) => files.has(name),
    open: async (name) => countedSource(await files.open(name), handles),
  };
}

export interface BackendLog {
  /** Bytes allocated and not freed. */
  liveBytes: number;
  peakBytes: number;
  /** Bytes of scalars and activations of prepared programs. */
  programBytes: number;
  /** Steps that started, and steps that completed. */
  numStarted: number;
  numRuns: number;
}

/** Wraps `backend` with counters; calls `beforeRun` and `afterRun` around every step. */
export function watchedBackend(
  backend: Backend,
  afterRun: (log: BackendLog) => void | Promise<void> = () => undefined,
  beforeRun: (log: BackendLog) => void = () => undefined,
): { readonly backend: Backend; readonly log: BackendLog } {
  const log: BackendLog = { liveBytes: 0, peakBytes: 0, programBytes: 0, numStarted: 0, numRuns: 0 };
  const watchedExecutable = (executable: Executable): Executable => ({
    program: executable.program,
    fallbacks: executable.fallbacks,
    async run(scalars, options) {
      log.numStarted++;
      beforeRun(log);
      await executable.run(scalars, options);
      log.numRuns++;
      await afterRun(log);
    },
    read: (output, target) => executable.read(output, target),
    profile: () => executable.profile(),
    async dispose() {
      log.programBytes -= executable.program.peakBytes;
      await executable.dispose();
    },
  });
  return {
    log,
    backend: {
      ...backend,
      name: 'watched',
      allocate(options) {
        const buffer = backend.allocate(options);
        log.liveBytes += options.sizeBytes;
        log.peakBytes = Math.max(log.peakBytes, log.liveBytes);
        return buffer;
      },
      free(buffer) {
        backend.free(buffer);
        log.liveBytes -= buffer.sizeBytes;
      },
      async prepare(program, options) {
        const executable = await backend.prepare(program, options);
        log.programBytes += program.peakBytes;
        return watchedExecutable(executable);
      },
    },
  };
}
