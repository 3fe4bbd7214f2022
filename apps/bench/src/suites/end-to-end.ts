/** Common code of decode, prefill and agreement: a model loaded in Winnow and, on request, in a peer. */
import { memorySink, memorySource } from '@winnow/bytes';
import { demoModelUrl } from '@winnow/demo-model';
import { loadModel, type Model, type ModelLocation, type Session } from '@winnow/engine';
import { createRng, isDType, type DType } from '@winnow/tensor';
import { threadsText, type SuiteContext } from '../harness/suite.js';
import { modelShape } from '../models/model-shapes.js';
import { syntheticModel } from '../models/synthetic-model.js';
import { firstWordId } from '../models/synthetic-vocabulary.js';
import { installPeer } from '../peer/install.js';
import { openPeerBinary } from '../peer/binary.js';
import type { PeerSettings } from '../peer/protocol.js';
import { startPeer, type Peer, type SpeedPeer } from '../peer/peer.js';

export interface LoadedContenders {
  /** Model, dtype and threads, for the names of cases. */
  readonly name: string;
  readonly model: Model;
  /** One per context size. */
  readonly sessions: readonly Session[];
  /** The first of them. */
  readonly session: Session;
  readonly peer: Peer | undefined;
  /** All other contenders: the peer, the program of `--peer-binary`, and Winnow with `--wasm`, `--visited-keys` and other policies. */
  readonly others: readonly SpeedPeer[];
  readonly threads: number;
  /** See `randomTokens`. */
  tokens(count: number): number[];
  dispose(): Promise<void>;
}

const demoName = 'winnow-tiny';
const wasmName = 'wasm kernels';
/** Tokens per block of the engine's cache. */
const kvBlockSize = 64;

export interface ModelCase {
  readonly name: string;
  readonly dtype: DType;
}

/** The models and dtypes to measure. */
export function* modelCases({ options }: SuiteContext): Generator<ModelCase> {
  for (const name of options.models ?? (options.quick ? [demoName] : ['smollm2-135m', 'tinyllama-1.1b'])) {
    const defaults: readonly DType[] = name === demoName ? ['f16'] : ['q8_0'];
    for (const dtype of options.dtypes ?? defaults) if (isDType(dtype)) yield { name, dtype };
  }
}

/** Loads one case with a session per context size. Uses the demo model itself unless a peer has to read it. */
export async function loadContenders(
  context: SuiteContext,
  { name, dtype }: ModelCase,
  contextSizes: readonly number[],
): Promise<LoadedContenders> {
  const { options, say } = context;
  const threads = options.threads.at(-1) ?? 1;
  const location = await locationOf(context, { name, dtype });
  const { attention, otherPolicies } = options;
  const closers: (() => Promise<void>)[] = [];
  const dispose = async (): Promise<void> => {
    for (const close of closers.toReversed()) await close();
  };
  try {
    say(`loading ${name} ${dtype}`);
    const { model, sessions, close } = await loadOwn(context, location, contextSizes, { attention });
    closers.push(close);
    const others: SpeedPeer[] = [];
    closers.push(async () => {
      for (const other of others) {
        context.addOwnMs(other.cpuMs);
        await other.dispose();
      }
    });
    const peer = await openPeers(context, { modelPath: String(location), contextSizes, threads }, others);
    const addWinnow = async (
      label: string,
      choice: OwnChoice,
      like?: readonly Session[],
    ): Promise<readonly Session[]> => {
      const own = await loadOwn(context, location, contextSizes, choice);
      others.push(new OtherWinnow(label, own, like));
      return own.sessions;
    };
    if (options.wasm) await addWinnow(wasmName, { attention, isNative: false }, sessions);
    if (options.visitedKeys) await addWinnow('visited keys counted', { attention, visitedKeys: true }, sessions);
    for (const other of otherPolicies) {
      const like = await addWinnow(other, { attention: other });
      if (options.wasm) await addWinnow(`${other}, ${wasmName}`, { attention: other, isNative: false }, like);
    }
    return {
      name: [`${name} ${dtype}`, ...(attention === undefined ? [] : [attention]), threadsText(threads)].join(', '),
      model,
      sessions,
      session: sessions[0]!,
      peer,
      others,
      threads,
      tokens: (count) => randomTokens(model.config.vocabSize, count),
      dispose,
    };
  } catch (error) {
    await dispose();
    throw error;
  }
}

/** Random ordinary tokens, deterministic: a shorter list is a prefix of a longer one. */
export function randomTokens(vocabSize: number, count: number): number[] {
  const rng = createRng(11);
  return Array.from({ length: count }, () => firstWordId + rng.nextInt(vocabSize - firstWordId));
}

/** Loads a model that counts the time of its ops. */
export async function loadProfiled(
  context: SuiteContext,
  modelCase: ModelCase,
  contextSize: number,
  isNative: boolean,
): Promise<OwnModel> {
  const { attention } = context.options;
  return loadOwn(context, await locationOf(context, modelCase), [contextSize], { attention, isNative, profile: true });
}

async function locationOf({ options, say }: SuiteContext, { name, dtype }: ModelCase): Promise<ModelLocation> {
  const hasPeer = options.peer !== undefined || options.peerBinary !== undefined;
  if (name === demoName && dtype === 'f16' && !hasPeer) return demoModelUrl;
  return syntheticModel(modelShape(name), dtype, options.modelsFolder, say);
}

interface OwnModel {
  readonly model: Model;
  /** One per context size. */
  readonly sessions: Session[];
  readonly close: () => Promise<void>;
}

interface OwnChoice {
  readonly attention: string | undefined;
  /** Default: the option `--native`. */
  readonly isNative?: boolean;
  /** Whether to count visited keys, as the page's live view does. Default: false. */
  readonly visitedKeys?: boolean;
  /** Whether to count the time of ops. Default: false. */
  readonly profile?: boolean;
}

async function loadOwn(
  { options, createBackend }: SuiteContext,
  location: ModelLocation,
  contextSizes: readonly number[],
  { attention, isNative, visitedKeys = false, profile = false }: OwnChoice,
): Promise<OwnModel> {
  const backend = await createBackend(options.threads.at(-1) ?? 1, 'default', isNative);
  try {
    const { batchSize, kvDType } = options;
    // the sessions share one cache; the last block of each may be partly empty
    const contextSize = contextSizes.reduce((sum, size) => sum + Math.ceil(size / kvBlockSize) * kvBlockSize, 0);
    const maxSessions = contextSizes.length;
    const chosen = {
      kvCache: { dtype: kvDType },
      trace: { visitedKeys },
      profile,
      ...(attention === undefined ? {} : { attention }),
    };
    const model = await loadModel(location, { backend, context: contextSize, batchSize, maxSessions, ...chosen });
    const close = async (): Promise<void> => {
      await model.dispose();
      await backend.dispose();
    };
    return { model, sessions: contextSizes.map(() => model.createSession()), close };
  } catch (error) {
    await backend.dispose();
    throw error;
  }
}

/** Winnow with other options, in this process. */
class OtherWinnow implements SpeedPeer {
  readonly name: string;
  readonly cpuMs = 0; // part of this process
  readonly #own: OwnModel;
  readonly #like: readonly Session[] | undefined;
  readonly #contexts: (readonly number[])[] = [];
  #numPrompts = 0;

  /** @param like sessions of a faster model with the same policy, whose contexts are copied instead of computed again */
  constructor(name: string, own: OwnModel, like?: readonly Session[]) {
    this.name = name;
    this.#own = own;
    this.#like = like;
  }

  async setContext(slot: number, tokens: readonly number[]): Promise<void> {
    this.#contexts[slot] = tokens;
    const { model, sessions } = this.#own;
    const like = this.#like?.[slot];
    if (like === undefined) return void (await greedy(sessions[slot]!, tokens, 1));
    const saved = memorySink();
    await like.save(saved);
    sessions[slot]!.dispose();
    sessions[slot] = await model.restoreSession(memorySource(saved.toBytes()));
  }

  prefill(tokens: readonly number[]): Promise<{ timeMs: number }> {
    const [session] = this.#own.sessions;
    session!.reset();
    return greedy(session!, uniquePrompt(tokens, this.#numPrompts++), 1);
  }

  decode(slot: number, token: number, count: number): Promise<{ timeMs: number }> {
    return greedy(this.#own.sessions[slot]!, [...this.#contexts[slot]!, token], count);
  }

  dispose(): Promise<void> {
    return this.#own.close();
  }
}

/** Prepends a different first token for each `index`, because the engine caches prefixes. */
export function uniquePrompt(tokens: readonly number[], index: number): number[] {
  return [tokens[index % tokens.length]!, ...tokens.slice(1)];
}

/** Opens the peer, which is returned, and the program of `--peer-binary`; both are added to `others`. */
async function openPeers(
  { options, say }: SuiteContext,
  asked: Omit<PeerSettings, 'flashAttention'>,
  others: SpeedPeer[],
): Promise<Peer | undefined> {
  const settings = { ...asked, flashAttention: options.peerFlash };
  let peer: Peer | undefined;
  if (options.peer === 'wllama') throw new Error('wllama is measured by prefill and decode only');
  if (options.peer !== undefined) {
    peer = await startPeer(await installPeer(options.peerFolder, say), settings);
    others.push(peer);
  }
  if (options.peerBinary !== undefined) others.push(await openPeerBinary(options.peerBinary, settings));
  return peer;
}

/** Greedy tokens after a prompt, ignoring end tokens. */
export function greedy(
  session: Session,
  prompt: readonly number[],
  maxTokens: number,
): Promise<{ tokens: readonly number[]; timeMs: number }> {
  return session
    .generate(prompt, { maxTokens, temperature: 0, ignoreEos: true })
    .result()
    .then(({ tokens, timings }) => {
      if (tokens.length !== maxTokens) throw new Error(`expected ${maxTokens} tokens, got ${tokens.length}`);
      return { tokens, timeMs: timings.promptMs + timings.generateMs };
    });
}
