/** An engine without arithmetic: its replies are scripted, its tokens are characters. */
import type {
  ChatTemplate,
  GenerateOptions,
  GeneratedToken,
  Generation,
  GenerationResult,
  LoadOptions,
  Model,
  ModelInfo,
  ModelLocation,
  ModelTokenizer,
  Prompt,
  Session,
} from '@winnow/engine';
import { finish } from '@winnow/tensor';
import type { EngineApi } from '../src/terminal/io.js';

export interface FakeOptions {
  readonly pieces?: readonly string[];
  /** Pieces of the first generations, in place of `pieces`. */
  readonly replies?: readonly (readonly string[])[];
  readonly hasChatTemplate?: boolean;
  /** Metadata of restored sessions. */
  readonly savedMetadata?: Session['metadata'];
  readonly result?: Partial<GenerationResult>;
  readonly loadError?: unknown;
  readonly generateError?: unknown;
  /** Called before each piece, for interruptions. */
  readonly beforePiece?: (index: number) => void | Promise<void>;
}

/** Calls received by the engine. */
interface FakeCalls {
  readonly loads: { location: ModelLocation; options: LoadOptions }[];
  readonly prompts: { prompt: Prompt; options: GenerateOptions }[];
  readonly disposed: { count: number };
  readonly restored: string[];
  readonly saved: { target: string; metadata: Session['metadata'] }[];
}

export interface FakeEngine extends FakeCalls {
  readonly api: EngineApi;
}

const vocabSize = 256;

const metrics: ReturnType<Model['metrics']> = {
  numSessions: 1,
  numFallbackRecords: 0,
  cache: {
    blockSize: 64,
    blockBytes: 1000,
    numBlocks: 1,
    numUsedBlocks: 1,
    numCachedBlocks: 0,
    numFreeBlocks: 0,
    numSharedTokens: 0,
    numCopiedBlocks: 0,
    copiedBytes: 0,
    numEvictedTokens: 0,
    numReclaimedBlocks: 0,
    numStates: 0,
    numStateSnapshots: 0,
  },
  steps: {
    numSteps: 2,
    numSharedSteps: 0,
    numTokens: 5,
    stepMs: 10,
    tokensPerSecond: 500,
    numPreemptions: 0,
    numDeviceLosses: 0,
    numWaiting: 0,
  },
  speculation: { numDraftedTokens: 0, numAcceptedTokens: 0 },
};

const tokenizer: ModelTokenizer['tokenizer'] = {
  kind: 'bpe',
  vocabSize,
  bosId: 1,
  eosId: 2,
  eosIds: [2],
  unkId: undefined,
  padId: undefined,
  sepId: undefined,
  clsId: undefined,
  maskId: undefined,
  maxTokenBytes: undefined,
  addBos: true,
  addEos: false,
  pair: undefined,
  encode: (text, options) => finish(tokenizer.encodeSliced(text, options)),
  *encodeSliced(text, { addSpecialTokens = true } = {}) {
    yield;
    return Int32Array.from([...(addSpecialTokens ? [1] : []), ...new TextEncoder().encode(text)]);
  },
  decode: (ids, { skipSpecialTokens = false } = {}) =>
    new TextDecoder().decode(Uint8Array.from(Array.from(ids).filter((id) => !skipSpecialTokens || id > 2))),
  tokenBytes: (id) => Uint8Array.of(id),
  tokenText: (id) => `<${id}>`,
  isSpecial: (id) => id <= 2,
  idOf: () => undefined,
  createDetokenizer: () => {
    throw new Error('not in the fake');
  },
};

const plan = {
  weightsBytes: 1000,
  kvBytes: 200,
  activationBytes: 30,
  totalBytes: 1230,
  contextSize: 64,
  kvBytesPerToken: 4,
};
const config = { architecture: 'fake', vocabSize } as Model['config'];
const chatTemplate: ChatTemplate = {
  source: '',
  render: (messages) => JSON.stringify(messages), // so that the fake can show them again
  *renderSliced(messages) {
    yield;
    return chatTemplate.render(messages);
  },
};
const info: ModelInfo = {
  name: 'fake',
  format: 'gguf',
  config,
  tensors: [{ name: 'a.weight', dtype: 'q8_0', shape: [32, 2], sizeBytes: 68 }],
  metadata: { 'general.name': 'fake', big: 2n ** 60n, small: 7n },
  plan,
};

/** A rendered conversation as its messages. */
function readable(prompt: Prompt): Prompt {
  if (!(prompt instanceof Int32Array)) return structuredClone(prompt) as Prompt;
  const text = tokenizer.decode(prompt, { skipSpecialTokens: true });
  return text.startsWith('[{') ? (JSON.parse(text) as Prompt) : prompt.slice();
}

export function createFakeEngine(options: FakeOptions = {}): FakeEngine {
  const calls: FakeCalls = { loads: [], prompts: [], disposed: { count: 0 }, restored: [], saved: [] };
  const model = createFakeModel(options, calls);
  const open = <T>(location: ModelLocation, loadOptions: LoadOptions, value: T): Promise<T> => {
    calls.loads.push({ location, options: loadOptions });
    return options.loadError === undefined ? Promise.resolve(value) : Promise.reject(options.loadError as Error);
  };
  return {
    api: {
      loadModel: (location, loadOptions = {}) => open(location, loadOptions, model),
      loadEmbeddingModel: () => Promise.reject(new Error('this engine does not embed')),
      loadReranker: () => Promise.reject(new Error('this engine does not rank')),
      inspectModel: (location, loadOptions = {}) => open(location, loadOptions, info),
      openTokenizer: (location, openOptions = {}) => open(location, openOptions, { tokenizer, chatTemplate }),
      openPromptStore: () => Promise.reject(new Error('this engine has no store')),
      weightsHash: (location, openOptions = {}) => open(location, openOptions, 'xxh:fake'),
    },
    ...calls,
  };
}

function createFakeModel(options: FakeOptions, calls: FakeCalls): Model {
  const createSession = fakeSessions(options, calls);
  const model: Model = {
    name: 'fake',
    config,
    tokenizer,
    chatTemplate: options.hasChatTemplate === false ? undefined : chatTemplate,
    imageToken: undefined,
    insertImages: (ids) => Promise.resolve(ids),
    defaultSampling: { temperature: 0.5, topP: 0.9 },
    contextSize: 64,
    plan,
    attention: 'dense',
    backend: 'fake-backend',
    fallbacks: [],
    notices: [],
    feedForward: undefined,
    createSession: () => createSession(null),
    restoreSession: (source) => {
      calls.restored.push(String(source));
      return Promise.resolve(createSession(options.savedMetadata ?? null));
    },
    metrics: () => metrics,
    generate: (prompt, generateOptions) => createSession(null).generate(prompt, generateOptions),
    encodePrompt: (prompt) => tokenizer.encode(String(prompt)),
    tokenize: (prompt) => Promise.resolve(tokenizer.encode(String(prompt))),
    logprobs: (tokens, { positions = [tokens.length - 1] } = {}) =>
      Promise.resolve(positions.map((position) => Float32Array.from({ length: vocabSize }, (_, id) => -id - position))),
    profile: () => [{ op: 'matmul', layer: 0, numRuns: 2, timeMs: 4, flops: 8e6, bytes: 4e6 }],
    dispose: () => {
      calls.disposed.count += 1;
      return Promise.resolve();
    },
    [Symbol.asyncDispose]: () => model.dispose(),
  };
  return model;
}

function fakeSessions(options: FakeOptions, calls: FakeCalls): (metadata: Session['metadata']) => Session {
  const createSession = (metadata: Session['metadata']): Session => ({
    tokens: [1, 2, 3],
    metadata,
    generate(prompt, generateOptions = {}) {
      calls.prompts.push({ prompt: readable(prompt), options: generateOptions });
      const pieces = options.replies?.[calls.prompts.length - 1];
      return fakeGeneration(pieces === undefined ? options : { ...options, pieces }, generateOptions);
    },
    resume(generateOptions = {}) {
      calls.prompts.push({ prompt: [], options: generateOptions });
      return fakeGeneration(options, generateOptions);
    },
    fork: () => createSession(null),
    save(target, { metadata: given = null } = {}) {
      calls.saved.push({ target: String(target), metadata: given });
      return Promise.resolve({ numTokens: 3, sizeBytes: 100 });
    },
    truncate: () => {},
    reset: () => {},
    dispose: () => {},
    [Symbol.dispose]: () => {},
  });
  return createSession;
}

function fakeGeneration(options: FakeOptions, { signal, maxTokens = Infinity }: GenerateOptions): Generation {
  const pieces = (options.pieces ?? ['Hello', ' world']).slice(0, maxTokens);
  let next = 0;
  async function* iterate(): AsyncGenerator<GeneratedToken> {
    if (options.generateError !== undefined) throw options.generateError;
    while (next < pieces.length) {
      await options.beforePiece?.(next);
      signal?.throwIfAborted();
      const text = pieces[next] as string;
      next += 1;
      yield { tokenId: next, text, logprob: -1, topLogprobs: [] };
    }
  }
  return {
    [Symbol.asyncIterator]: iterate,
    result: async () => {
      for await (const _token of iterate());
      return {
        text: pieces.join(''),
        tokens: pieces.map((_, index) => index + 1),
        promptTokens: 3,
        cachedTokens: 0,
        droppedTokens: 0,
        evictedTokens: 0,
        finishReason: 'eos',
        satisfiesConstraint: true,
        timings: { promptMs: 10, generateMs: 20, promptTokensPerSecond: 300, tokensPerSecond: 100 },
        ...options.result,
      };
    },
  };
}
