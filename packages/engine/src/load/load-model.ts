/** Loads an open model into a backend. */
import { createWasmBackend } from '@winnow/backend-wasm';
import { describeModel, type ScaledLora } from '@winnow/models';
import type { Backend, Executable, Program } from '@winnow/ops';
import { ReleasedError } from '@winnow/tensor';
import type { Tokenizer } from '@winnow/tokenizers';
import { adaptWeights } from './adapt-weights.js';
import { createChatTemplate, type ChatTemplate } from '../chat/template.js';
import { createConstraints } from '../generation/constraint.js';
import { createFeedForwardAccess, createFeedForwardTracer } from '../sparsity/feed-forward-trace.js';
import { traceFeedForward } from '../generation/logprobs.js';
import type { FeedForwardLayer } from '../sparsity/feed-forward.js';
import { loadBuffers } from '../memory/load-buffers.js';
import { noColdFolders, type OpenColdFolder } from '../memory/cold-files.js';
import type { Host } from '../generation/loaded-model.js';
import { createMissingTokenizer } from './missing-tokenizer.js';
import { createModel, type Model } from '../sessions/model.js';
import { modelHash } from './model-hash.js';
import { guardedListener, type ReportEvent } from '../metrics/events.js';
import { beyondTrained, sessionOptions, type ModelPlan } from '../plan/model-plan.js';
import { fitModel } from '../plan/fit-model.js';
import { openFeedForward, type FeedForwardRuntime } from '../weight-offload/feed-forward-runtime.js';
import { openSparse } from '../sparsity/options.js';
import { type WeightHost, checkWeightTiers } from '../weight-offload/options.js';
import { tierNotices } from '../plan/memory-plan.js';
import { createRuntime, type Runtime } from '../runtime/runtime.js';
import type { OpenedModel } from './opened-model.js';
import type { SessionKey, SessionModel } from '../sessions/file.js';
import { noSessionFiles, type SessionFiles } from '../sessions/location.js';
import type { HostOptions, LoadOptions } from './options.js';
import { weightNames } from '../sparsity/weights-hash.js';
import { withFeedForward } from '../sparsity/with-feed-forward.js';

/** Takes over `opened`: it is closed when the model is loaded, or when loading fails. */
export async function loadOpenedModel(
  opened: OpenedModel,
  options: LoadOptions,
  files: SessionFiles = noSessionFiles,
  openFolder: OpenColdFolder = noColdFolders,
  adapters: readonly ScaledLora[] = [],
  weightHost: WeightHost = {},
): Promise<Model> {
  let ownBackend: Backend | undefined;
  const lease = { isKept: false };
  const common = { files, openFolder, weightHost, adapters, lease };
  try {
    const { backend } = options;
    if (backend !== undefined) return await load(opened, options, { ...common, backend, ownBackend });
    const { numThreads, activations } = options;
    ownBackend = await createWasmBackend({
      ...(numThreads === undefined ? {} : { numThreads }),
      ...(activations === undefined ? {} : { activations }),
    });
    return await load(opened, options, { ...common, backend: ownBackend, ownBackend });
  } catch (error) {
    await ownBackend?.dispose();
    throw error;
  } finally {
    if (!lease.isKept) await opened.close();
  }
}

interface LoadHost {
  readonly files: SessionFiles;
  readonly openFolder: OpenColdFolder;
  readonly weightHost: WeightHost;
  /** Whether the model's file stays open for as long as the model lives. */
  readonly lease: { isKept: boolean };
  /** Those of the options, read. */
  readonly adapters: readonly ScaledLora[];
  readonly backend: Backend;
  /** The same, when it goes with the model. */
  readonly ownBackend: Backend | undefined;
}

async function load(
  opened: OpenedModel,
  options: LoadOptions,
  { files, openFolder, weightHost, adapters, backend, ownBackend, lease }: LoadHost,
): Promise<Model> {
  const file = await opened.openFile();
  const described = await describeModel(file);
  const notices = await adaptWeights(described, options, file.format, adapters);
  const tracedLayers = new Map<number, FeedForwardLayer>();
  const traced =
    options.traceFeedForward === true
      ? withFeedForward(described, () => ({
          feedForward: createFeedForwardTracer((layer) => void tracedLayers.set(layer.layer, layer)),
        }))
      : described;
  checkWeightTiers(options);
  const notice = (text: string): void => guardedListener(options.onEvent)({ kind: 'notice', text });
  const sparse = await openSparse(described, file, options, weightHost, backend);
  const fitted = fitModel(traced, options, sparse, notice);
  const { plan, description, tiers } = fitted;
  const tokenizer =
    (await opened.openTokenizer()) ??
    createMissingTokenizer(opened.name, opened.tokenizerField, description.config.vocabSize);
  const chatTemplate = templateOf(opened, tokenizer);
  const programs = [...plan.programs, ...(plan.tiers?.programs ?? [])];
  const host = hostOf(options);
  const { signal } = options;
  const names =
    options.traceFeedForward === true
      ? await weightNames(file.store, signal === undefined ? {} : { signal })
      : undefined;
  const buffers = await loadBuffers(backend, description, programs, options);
  const executables = new Map<Program, Executable>();
  let runtime: Runtime;
  let feedForward: FeedForwardRuntime | undefined;
  let sessionKey: SessionKey;
  try {
    // the factors are among the weights; what is merged or scaled by 0 is told by name
    const named = adapters.map(({ lora, scale }) => [lora.name, scale]);
    const facts = named.length === 0 ? opened.metadata : { ...opened.metadata, adapters: named };
    const loadedHash = await modelHash(facts, file.store, backend, buffers, description.weights, tiers);
    sessionKey = { modelHash: loadedHash, options: sessionOptions(plan) };
    const parts = { backend, buffers, weights: description.weights, tiers, sparse, options, now: host.now };
    feedForward = await openFeedForward({ ...parts, host: weightHost });
    for (const program of programs) {
      const executable = await backend.prepare(program, {
        buffers,
        onUnsupported: options.onUnsupported ?? 'fallback',
        profile: options.profile ?? false,
        ...(signal === undefined ? {} : { signal }),
      });
      executables.set(program, feedForward.wrap(executable));
    }
    runtime = await createRuntime({ backend, buffers, plan, executables, options, openFolder, now: host.now });
  } catch (error) {
    for (const executable of executables.values()) await executable.dispose();
    await feedForward?.close();
    for (const buffer of buffers.values()) backend.free(buffer);
    throw error;
  }
  const { pool, scheduler } = runtime;
  const closeFeedForward = feedForward.close;
  lease.isKept = tiers !== undefined;
  const access =
    names === undefined
      ? undefined
      : createFeedForwardAccess({
          ...names,
          layers: [...tracedLayers.values()],
          weights: description.weights,
          backend,
          buffers,
          exclusive: (task) => scheduler.exclusive(task),
          trace: (tokens, onLayer, traceOptions = {}) =>
            traceFeedForward(loaded, [...tracedLayers.values()], tokens, onLayer, traceOptions),
        });
  const eosIds = new Set([...tokenizer.eosIds, ...opened.eosIds]);
  const loaded: SessionModel = {
    config: description.config,
    tokenizer,
    eosIds,
    constraints: createConstraints(tokenizer, description.config.vocabSize, eosIds),
    defaultSampling: opened.defaultSampling,
    contextSize: plan.contextSize,
    attention: plan.attention.requirements,
    noteLength: lengthNotice(plan, pool.report),
    pool,
    scheduler,
    host,
    sessionKey,
    files,
    numTop: plan.numTop,
    tracedLayers: plan.tracedLayers,
  };
  return createModel({
    name: opened.name,
    backend: backend.name,
    fallbacks: [...executables.values()].flatMap((executable) => executable.fallbacks),
    notices: [...notices, ...(sparse?.notices ?? []), ...tierNotices(plan.memory)],
    chatTemplate,
    maxSessions: plan.maxSessions,
    plan: plan.memory,
    attention: plan.attention.text ?? 'dense',
    feedForward: access,
    feedForwardMetrics: feedForward.metrics,
    loaded,
    async freeMemory() {
      try {
        await pool.tiers?.close();
        await closeFeedForward();
      } finally {
        if (lease.isKept) await opened.close();
        await freeAll();
      }
    },
  });

  async function freeAll(): Promise<void> {
    try {
      for (const program of plan.tiers?.programs ?? []) await executables.get(program)?.dispose();
      for (const buffer of buffers.values()) backend.free(buffer);
    } catch (error) {
      if (!(error instanceof ReleasedError)) throw error; // the backend was disposed first, and freed everything
    }
    await ownBackend?.dispose();
  }
}

/** Says once that a sequence grows beyond what the model was trained for; nothing where loading has said it. */
function lengthNotice({ config, contextSize, attention }: ModelPlan, report: ReportEvent): (numTokens: number) => void {
  const { contextLength } = config;
  let isTold = contextSize > contextLength || attention.requirements.reads !== undefined;
  return (numTokens) => {
    if (isTold || numTokens <= contextLength) return;
    isTold = true;
    report({ kind: 'notice', text: beyondTrained(numTokens, contextLength) });
  };
}

export function templateOf({ name, chatTemplate }: OpenedModel, tokenizer: Tokenizer): ChatTemplate | undefined {
  if (chatTemplate === undefined) return undefined;
  const ids = {
    bos_token: tokenizer.bosId,
    eos_token: tokenizer.eosId,
    pad_token: tokenizer.padId,
    unk_token: tokenizer.unkId,
  };
  const texts = Object.entries(ids).map(([key, id]) => [key, id === undefined ? '' : tokenizer.tokenText(id)]);
  return createChatTemplate(name, chatTemplate, Object.fromEntries(texts));
}

interface Globals {
  readonly performance: { now(): number };
  readonly crypto: { getRandomValues(target: Uint32Array): Uint32Array };
}

function hostOf({ now, randomSeed }: HostOptions): Host {
  const globals = globalThis as unknown as Globals;
  return {
    now: now ?? ((): number => globals.performance.now()),
    randomSeed: randomSeed ?? ((): number => globals.crypto.getRandomValues(new Uint32Array(1))[0] as number),
  };
}
