/** Common code of decode, prefill and agreement: a model loaded in Winnow and, on request, in a peer. */
import { demoModelUrl } from '@winnow/demo-model';
import { loadModel, type Model, type ModelLocation, type Session } from '@winnow/engine';
import { createRng, isDType, type DType } from '@winnow/tensor';
import { threadsText, type SuiteContext } from '../harness/suite.js';
import { modelShape } from '../models/model-shapes.js';
import { syntheticModel } from '../models/synthetic-model.js';
import { firstWordId } from '../models/synthetic-vocabulary.js';
import { installPeer } from '../peer/install-peer.js';
import { startPeer, type Peer } from '../peer/peer.js';

export interface LoadedContenders {
  /** Model, dtype and threads, for the names of cases. */
  readonly name: string;
  readonly model: Model;
  /** One per context size. */
  readonly sessions: readonly Session[];
  /** The first of them. */
  readonly session: Session;
  readonly peer: Peer | undefined;
  readonly threads: number;
  /** Random ordinary tokens, deterministic: a shorter list is a prefix of a longer one. */
  tokens(count: number): number[];
  dispose(): Promise<void>;
}

const demoName = 'winnow-tiny';
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
  { name, dtype }: { name: string; dtype: DType },
  contextSizes: readonly number[],
): Promise<LoadedContenders> {
  const { options, say } = context;
  const threads = options.threads.at(-1) ?? 1;
  const isDemo = name === demoName && dtype === 'f16' && options.peer === undefined;
  const shape = modelShape(name);
  const location: ModelLocation = isDemo ? demoModelUrl : await syntheticModel(shape, dtype, options.modelsFolder, say);
  const backend = await context.createBackend(threads, 'default');
  const closers: (() => Promise<void>)[] = [() => backend.dispose()];
  const dispose = async (): Promise<void> => {
    for (const close of closers.toReversed()) await close();
  };
  try {
    say(`loading ${name} ${dtype}`);
    const { batchSize, kvDType, attention } = options;
    // the sessions share one cache; the last block of each may be partly empty
    const contextSize = contextSizes.reduce((sum, size) => sum + Math.ceil(size / kvBlockSize) * kvBlockSize, 0);
    const maxSessions = contextSizes.length;
    const chosen = { kvCache: { dtype: kvDType }, ...(attention === undefined ? {} : { attention }) };
    const model = await loadModel(location, { backend, context: contextSize, batchSize, maxSessions, ...chosen });
    closers.push(() => model.dispose());
    let peer: Peer | undefined;
    if (options.peer === 'wllama') throw new Error('wllama is measured by prefill and decode only');
    if (options.peer !== undefined) {
      const modulePath = await installPeer(options.peerFolder, say);
      const flashAttention = options.peerFlash;
      const started = await startPeer(modulePath, {
        modelPath: String(location),
        contextSizes,
        threads,
        flashAttention,
      });
      peer = started;
      closers.push(async () => {
        context.addOwnMs(started.cpuMs);
        await started.dispose();
      });
    }
    const sessions = contextSizes.map(() => model.createSession());
    return {
      name: [`${name} ${dtype}`, ...(attention === undefined ? [] : [attention]), threadsText(threads)].join(', '),
      model,
      sessions,
      session: sessions[0]!,
      peer,
      threads,
      tokens(count) {
        const rng = createRng(11);
        return Array.from({ length: count }, () => firstWordId + rng.nextInt(shape.vocabSize - firstWordId));
      },
      dispose,
    };
  } catch (error) {
    await dispose();
    throw error;
  }
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
