/** Loads an open decoder into a backend. */
import { ropeFrequenciesName, type ModelDescription, type ModelFile, type ScaledLora } from '@winnow/models';
import type { Tokenizer } from '@winnow/tokenizers';
import type { ImageProcessor } from '@winnow/vision';
import { createChatTemplate, type ChatTemplate } from '../chat/template.js';
import { Constraints } from '../generation/constraint.js';
import { traceFeedForward } from '../generation/logprobs.js';
import { checkDraftModel, checkHasDraftModel } from '../generation/draft-model.js';
import { StepCosts } from '../generation/step-costs.js';
import { processorOf } from '../images/image-encoder.js';
import { ImagePrompts } from '../images/image-prompts.js';
import { imagePlaceId, imageRowsFor } from '../images/image-rows.js';
import type { ImageRotation } from '../images/step-images.js';
import { createImageTokenizer } from '../images/tokenizer.js';
import type { ReportEvent } from '../metrics/events.js';
import { SpeculationCounts } from '../metrics/speculation.js';
import { chooseAttention } from '../plan/auto-attention.js';
import { fitModel, type ModelToFit } from '../plan/fit-model.js';
import type { FittedPlan } from '../plan/fit-weights.js';
import { limitsOn, planNotices } from '../plan/memory-plan.js';
import { beyondTrained, sessionOptions, type ModelPlan } from '../plan/model-plan.js';
import { checkVerifies, draftObstacle } from '../plan/speculative.js';
import type { PromptStore } from '../runtime/prompt-cache/store.js';
import { PromptCache, type SessionKey } from '../runtime/prompt-cache/prompt-cache.js';
import { createRuntime, type Runtime } from '../runtime/runtime.js';
import type { SessionModel } from '../sessions/file.js';
import { GenerativeModel, type Model } from '../sessions/model.js';
import { createFeedForwardAccess, createFeedForwardTracer } from '../sparsity/feed-forward-trace.js';
import type { FeedForwardAccess, FeedForwardLayer } from '../sparsity/feed-forward.js';
import { openSparse } from '../sparsity/options.js';
import { weightNames, type WeightNames } from '../sparsity/weights-hash.js';
import { budgetOf } from '../weight-offload/options.js';
import { adaptWeights } from './adapt-weights.js';
import { createImageEncoder } from './create-image-encoder.js';
import type { EngineHost } from './engine.js';
import { createMissingTokenizer } from './missing-tokenizer.js';
import { checkSameModel, modelHash } from './model-hash.js';
import { describeOpened } from './mmproj.js';
import type { OpenedModel } from './opened-model.js';
import type { ResolvedOptions } from './resolved-options.js';
import type { ModelResources } from './resources.js';

/**
 * Takes ownership of `resources`: its file is closed when the model is loaded, when loading fails, or with the model that
 * reads from it.
 */
export async function loadOpenedModel(
  resources: ModelResources,
  options: ResolvedOptions,
  adapters: readonly ScaledLora[],
  host: EngineHost,
): Promise<Model> {
  try {
    checkHasDraftModel(options);
    const described = await describe(resources, options, adapters, host);
    checkDraftModel(options.draftModel, described.tokenizer);
    const limits = limitsOn(resources.backend.limits, host.memoryBytes, budgetOf(options.memory));
    const fitted = fitModel(described, options, limits, options.notice);
    const loaded = await loadWeights(described, fitted, resources, options, host);
    const model = createModel(loaded, host);
    if (fitted.tiers === undefined && !resources.isReplaceable) await resources.closeFile();
    return model;
  } catch (error) {
    await resources.release();
    throw error;
  }
}

/** A model as its files describe it, with its weights still in them. */
interface DescribedModel extends ModelToFit {
  readonly file: ModelFile;
  readonly adapters: readonly ScaledLora[];
  readonly notices: readonly string[];
  readonly tracedLayers: ReadonlyMap<number, FeedForwardLayer>;
  /** With `trace.feedForward`. */
  readonly weightNames: WeightNames | undefined;
  readonly tokenizer: Tokenizer;
  /** For models that take images. */
  readonly processor: ImageProcessor | undefined;
}

async function describe(
  { opened, backend }: ModelResources,
  options: ResolvedOptions,
  adapters: readonly ScaledLora[],
  host: EngineHost,
): Promise<DescribedModel> {
  const file = await opened.openFile();
  const stored = await opened.openTokenizer();
  const notices = [...(backend.notices ?? [])];
  const description = await describeOpened(opened, file, stored, (text) => notices.push(text));
  notices.push(...(await adaptWeights(description, options, file.format, adapters)));
  const tracedLayers = new Map<number, FeedForwardLayer>();
  const traced = options.trace?.feedForward === true ? createFeedForwardTracer(tracedLayers) : undefined;
  const sparse = await openSparse(description, file, options, host, backend);
  const attention = await chooseAttention(options, file.store, host, options.notice);
  const plain = stored ?? createMissingTokenizer(opened.name, opened.tokenizerField, description.config.vocabSize);
  const marks = description.vision?.marks;
  const tokenizer = marks === undefined ? plain : createImageTokenizer(plain, marks);
  const names = options.trace?.feedForward === true ? await weightNames(file.store, options) : undefined;
  return {
    file,
    adapters,
    description,
    attention,
    sparse,
    traced,
    notices,
    tracedLayers,
    weightNames: names,
    tokenizer,
    processor: description.vision && processorOf(description.vision, opened.imageSettings, opened.name),
  };
}

/** A model whose weights are in the backend's memory and whose programs are prepared. */
interface LoadedParts {
  readonly described: DescribedModel;
  readonly plan: ModelPlan;
  readonly draftObstacle: string | undefined;
  readonly resources: ModelResources;
  readonly options: ResolvedOptions;
  readonly runtime: Runtime;
  readonly modelHash: string;
  readonly images: ImagePrompts | undefined;
}

async function loadWeights(
  described: DescribedModel,
  { plan, tiers }: FittedPlan<ModelPlan>,
  resources: ModelResources,
  options: ResolvedOptions,
  engineHost: EngineHost,
): Promise<LoadedParts> {
  const { description, file, sparse } = described;
  const { backend } = resources;
  const { weights } = description;
  // sparse FFNs select neurons for all tokens of a step together
  const isSparse = sparse !== undefined && !sparse.isForDrafts;
  const obstacle = draftObstacle(plan.attention.layers, isSparse, backend);
  const batchInvariant = checkVerifies(options.speculative, obstacle);
  const side = [plan.draftProgram, plan.visionProgram, plan.imageProgram].filter((program) => program !== undefined);
  const programs = [...plan.programs, ...side, ...(plan.tiers?.programs ?? [])];
  const buffers = await resources.upload(description, programs);
  // before programs are prepared, which may repack weights
  const facts = factsOf(resources.opened, described.adapters);
  const hashOf = (): Promise<string> => modelHash(facts, file.store, backend, buffers, weights, tiers);
  const hash = await hashOf();
  const { now } = options.host;
  await resources.prepare(programs, { weights, tiers, sparse, host: engineHost, now }, batchInvariant);
  const { openFolder } = engineHost;
  const checkWeights = (): Promise<void> => checkSameModel(file.store.name, hash, hashOf);
  const deviceRecovery = resources.deviceRecovery(description, checkWeights, options.report);
  const executables = resources.executables;
  const rows = description.vision && imageRowsFor(description.vision.dim, plan.contextSize);
  const tokenId = description.config.imageTokenId as number;
  const runtime = await createRuntime({
    ...{ backend, buffers, options, now, plan, executables, openFolder, deviceRecovery },
    images: rows && { rows, tokenId, backend, buffers, rotation: imageRotationOf(description) },
    verifiesDrafts: batchInvariant,
  });
  const encoder = createImageEncoder(described, plan.visionProgram, resources, deviceRecovery, engineHost);
  const exclusive = <T>(task: () => Promise<T>): Promise<T> => runtime.scheduler.exclusive(task);
  const { tokenizer } = described;
  const marker = description.vision?.marks?.marker;
  const images =
    encoder &&
    rows &&
    new ImagePrompts({
      ...{ encoder, rows, exclusive, tokenizer, contextSize: plan.contextSize },
      placeId: marker === undefined ? tokenId : imagePlaceId,
      tokenText: marker ?? tokenizer.tokenText(tokenId),
    });
  return { described, plan, draftObstacle: obstacle, resources, options, runtime, modelHash: hash, images };
}

/** `undefined` for models whose rows of images have one position each. */
function imageRotationOf({ config, constants }: ModelDescription): ImageRotation | undefined {
  const coordinates = config.rope?.coordinates;
  return coordinates && { coordinates, frequencies: constants.get(ropeFrequenciesName) as Float32Array };
}

/** Weights of adapters are hashed with the others; adapters that are merged or scaled by 0 count by name. */
function factsOf({ metadata }: OpenedModel, adapters: readonly ScaledLora[]): Readonly<Record<string, unknown>> {
  const named = adapters.map(({ lora, scale }) => [lora.name, scale]);
  return named.length === 0 ? metadata : { ...metadata, adapters: named };
}

function createModel(parts: LoadedParts, engineHost: EngineHost): Model {
  const { described, plan, resources, runtime } = parts;
  const { tokenizer, notices, sparse } = described;
  const { opened } = resources;
  const loaded = sessionModelOf(parts, engineHost);
  return new GenerativeModel({
    name: opened.name,
    backend: resources.backend.name,
    fallbacks: [...resources.executables.values()].flatMap(({ fallbacks }) => fallbacks),
    notices: [...notices, ...(sparse?.notices ?? []), ...planNotices(plan.memory)],
    chatTemplate: templateOf(opened, tokenizer),
    maxSessions: plan.maxSessions,
    plan: plan.memory,
    attention: plan.attention.text ?? 'dense',
    feedForward: described.weightNames && accessOf(parts, loaded, described.weightNames),
    feedForwardMetrics: () => resources.feedForward?.metrics(),
    visitedKeysMetrics: () => runtime.visitedKeys?.metrics(),
    loaded,
    async release() {
      await loaded.promptCache?.close();
      try {
        await runtime.pool.tiers?.close();
      } finally {
        await resources.release();
      }
    },
  });
}

function sessionModelOf(
  { described, plan, draftObstacle: obstacle, resources, options, runtime, modelHash: hash, images }: LoadedParts,
  files: EngineHost,
): SessionModel {
  const { tokenizer, description } = described;
  const { opened } = resources;
  const eosIds = new Set([...tokenizer.eosIds, ...opened.eosIds]);
  const sessionKey = { modelHash: hash, options: sessionOptions(plan) };
  const lengthNotice = new LengthNotice(plan, options.report);
  return {
    config: description.config,
    tokenizer,
    eosIds,
    constraints: new Constraints(tokenizer, description.config.vocabSize, eosIds, options.host.now),
    defaultSampling: opened.defaultSampling,
    speculative: options.speculative,
    draftObstacle: obstacle,
    draftModel: options.draftModel,
    speculation: new SpeculationCounts(),
    stepCosts: new StepCosts(),
    contextSize: plan.contextSize,
    attention: plan.attention.requirements,
    noteLength: (numTokens) => lengthNotice.note(numTokens),
    pool: runtime.pool,
    scheduler: runtime.scheduler,
    promptCache: promptCacheOf(runtime, options, sessionKey),
    nonFinite: resources.nonFiniteSearch(description),
    host: options.host,
    sessionKey,
    images,
    files,
    numTop: plan.numTop,
    tracedLayers: plan.tracedLayers,
  };
}

/** Models whose cache is more than the blocks of the pool have none, and a notice says so. */
function promptCacheOf(
  { pool, scheduler }: Runtime,
  { promptCache = [], kvCache, host }: ResolvedOptions,
  sessionKey: SessionKey,
): PromptCache | undefined {
  const stores = [promptCache].flat() as PromptStore[];
  if (stores.length === 0) return undefined;
  const { states, tiers, heavyHitters } = pool;
  const isUnshared = kvCache.prefixSharing === false;
  if (states === undefined && tiers === undefined && heavyHitters === undefined && !isUnshared) {
    return new PromptCache({ pool, scheduler, stores, sessionKey, now: host.now });
  }
  const obstacle =
    states !== undefined
      ? 'recurrent states'
      : tiers !== undefined
        ? 'KV offload'
        : isUnshared
          ? 'prefix sharing turned off'
          : 'attention masses';
  pool.report({ kind: 'notice', text: `promptCache has no effect: pages cannot be restored with ${obstacle}` });
  return undefined;
}

function accessOf(
  { described, resources, runtime }: LoadedParts,
  loaded: SessionModel,
  names: WeightNames,
): FeedForwardAccess {
  const layers = [...described.tracedLayers.values()];
  return createFeedForwardAccess({
    ...names,
    layers,
    weights: described.description.weights,
    backend: resources.backend,
    buffers: resources.buffers,
    exclusive: (task) => runtime.scheduler.exclusive(task),
    trace: (tokens, onLayer, options = {}) => traceFeedForward(loaded, layers, tokens, onLayer, options),
  });
}

/** Reports once when a sequence outgrows the trained context, unless loading has reported it. */
class LengthNotice {
  readonly #contextLength: number;
  readonly #report: ReportEvent;
  #isReported: boolean;

  constructor({ config, contextSize, attention }: ModelPlan, report: ReportEvent) {
    this.#contextLength = config.contextLength;
    this.#report = report;
    this.#isReported = contextSize > config.contextLength || attention.requirements.reads !== undefined;
  }

  note(numTokens: number): void {
    if (this.#isReported || numTokens <= this.#contextLength) return;
    this.#isReported = true;
    this.#report({ kind: 'notice', text: beyondTrained(numTokens, this.#contextLength) });
  }
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
