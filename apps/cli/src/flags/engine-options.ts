/** Converts flags to options of the engine. */
import type {
  GenerateOptions,
  KvCacheOptions,
  KvOffloadOptions,
  LeastAttendedOptions,
  LoadOptions,
  LoraOptions,
  MemoryOptions,
  SamplingOptions,
  SparsityOptions,
  Speculative,
} from '@winnow/engine';
import { createWasmBackend } from '@winnow/backend-wasm';
import { createReferenceBackend } from '@winnow/ops';
import { attentionFromOptions, type AttentionSpec } from '@winnow/sparse-attention';
import type { MaxActiveRatio } from '@winnow/sparse-inference';
import { ArgumentError, definedFields } from '@winnow/tensor';
import { UsageError } from '../errors/errors.js';
import { numberRules } from './builders.js';
import { type GenerationFlags } from './generation.js';
import type { AttentionFlags, ExecutionFlags, LoadFlags, SparseFlags } from './load.js';
import { parseNumber, unescapeText } from './parse-values.js';

/** The group of options, undefined when none of them is set. */
function group<T extends object>(fields: { [K in keyof T]?: T[K] | undefined }): Partial<T> | undefined {
  const options = definedFields<T>(fields);
  return Object.keys(options).length === 0 ? undefined : options;
}

type ExecutionOptions = Pick<LoadOptions, 'backend' | 'threads' | 'activations' | 'native'>;

/** `--backend reference` uses the reference ops; the default is the engine's. */
export function executionOptionsOf({ backend, threads, activations, native }: ExecutionFlags): ExecutionOptions {
  return definedFields<ExecutionOptions>({
    backend: backend === 'reference' ? createReferenceBackend() : undefined,
    threads,
    activations,
    native: native === 'on' ? true : native === 'off' ? false : native,
  });
}

/** The share of active neurons above which models that are loaded with these flags run a layer dense. */
export async function maxActiveOf({
  sparsityMaxActive,
  ...flags
}: ExecutionFlags & Pick<SparseFlags, 'sparsityMaxActive'>): Promise<MaxActiveRatio> {
  if (sparsityMaxActive !== undefined) return sparsityMaxActive;
  const { backend, threads, activations, native } = executionOptionsOf(flags);
  if (backend !== undefined) return backend.breakEvenRatio;
  const own = await createWasmBackend({ numThreads: threads, activations, native });
  await own.dispose();
  return own.breakEvenRatio;
}

/** MODEL of `--speculative draft=MODEL`. */
export function draftModelOf({ speculative = 'off' }: LoadFlags): string | undefined {
  return speculative.startsWith('draft=') ? speculative.slice('draft='.length) : undefined;
}

/**
 * @param kvCache options that the command sets itself; they override flags
 * @throws {UsageError} naming the flag
 */
export function loadOptionsOf(flags: LoadFlags, kvCache?: KvCacheOptions): LoadOptions {
  return definedFields<LoadOptions>({
    ...executionOptionsOf(flags),
    attention: isAuto(flags) ? 'auto' : attentionOf(flags),
    policyFile: flags.policyFile,
    speculative: draftModelOf(flags) === undefined ? (flags.speculative as Speculative | undefined) : 'draft',
    context: flags.context === 0 ? undefined : flags.context,
    batchSize: flags.batchSize,
    kvCache: group<KvCacheOptions>({
      dtype: flags.kvDtype,
      rotation: flags.kvRotation,
      eviction: evictionOf(flags),
      capacity: flags.kvCapacity,
      prefixSharing: flags.kvPrefixSharing === false ? false : undefined,
      whenFull: flags.kvWhenFull,
      budget: flags.kvBudget,
      offload: group<KvOffloadOptions>({ memory: flags.kvOffloadMemory, folder: flags.kvOffloadFolder }),
      ...kvCache,
    }),
    maxSessions: flags.maxSessions ?? 1,
    ...sparseOptionsOf(flags),
    quantize: flags.quantize,
    mmproj: flags.mmproj,
    lora: loraOf(flags),
    profile: flags.profile,
    trace: flags.visitedKeys === true ? { visitedKeys: true } : undefined,
  });
}

/** Whether the policies come from a policy file. @throws {UsageError} for flags that exclude each other */
export function isAuto({ attention, prefill, decode, policyFile }: AttentionFlags): boolean {
  const isAsked = attention?.trim() === 'auto';
  if (!isAsked && policyFile !== undefined) throw new UsageError('--policy-file: requires --attention auto');
  const other = prefill === undefined ? (decode === undefined ? undefined : '--decode') : '--prefill';
  if (isAsked && other !== undefined) throw new UsageError(`${other}: expected nothing beside --attention auto`);
  return isAsked;
}

/** The flags of a command that chooses the policies of each model itself. */
export function withoutPolicies<Flags extends LoadFlags>(flags: Flags): Flags {
  const { attention: _attention, prefill: _prefill, decode: _decode, policyFile: _policyFile, ...rest } = flags;
  return rest as Flags;
}

/** Undefined without such flags. @throws {UsageError} naming the flag */
export function attentionOf({ attention, prefill, decode }: AttentionFlags): AttentionSpec | undefined {
  if (attention === undefined && prefill === undefined && decode === undefined) return undefined;
  try {
    return attentionFromOptions({ attention, prefill, decode });
  } catch (error) {
    if (!ArgumentError.isInstance(error)) throw error;
    throw new UsageError(error.message.replace(/^(attention|prefill|decode)\b/, '--$1'));
  }
}

/** Sparse FFNs, and weight offload beyond the memory budget. */
export function sparseOptionsOf(flags: SparseFlags): Pick<LoadOptions, 'memory' | 'sparsity'> {
  return definedFields<Pick<LoadOptions, 'memory' | 'sparsity'>>({
    sparsity: group<SparsityOptions>({
      calibration: flags.sparsity,
      maxActive: flags.sparsityMaxActive,
      use: flags.sparsityUse,
      verify: flags.sparsityVerify,
    }),
    memory: group<MemoryOptions>({
      budget: flags.memory,
      hot: flags.memoryHot,
      warm: flags.memoryWarm,
      cold: flags.memoryCold,
      folder: flags.memoryFolder,
    }),
  });
}

/** The numbers of kept tokens imply least-attended. */
function evictionOf(flags: LoadFlags): KvCacheOptions['eviction'] {
  const kept = group<LeastAttendedOptions>({
    firstTokens: flags.kvEvictionFirstTokens,
    recentTokens: flags.kvEvictionRecentTokens,
  });
  if (kept === undefined || flags.kvEviction !== 'oldest') return kept ?? flags.kvEviction;
  const name = kept.firstTokens === undefined ? '--kv-eviction-recent-tokens' : '--kv-eviction-first-tokens';
  throw new UsageError(`${name}: requires --kv-eviction least-attended`);
}

function loraOf({ lora = [], loraScaled = [], loraMode }: LoadFlags): LoraOptions | undefined {
  const scaled = loraScaled.map((text) => {
    const [, source = text, number = ''] = /^(.+):([^:]*)$/.exec(text) ?? [];
    return { source, scale: parseNumber('--lora-scaled', number, numberRules.any) };
  });
  const adapters = [...lora.map((source) => ({ source })), ...scaled];
  if (adapters.length > 0) return { adapters, ...definedFields<LoraOptions>({ mode: loraMode }) };
  if (loraMode !== undefined) throw new UsageError('--lora-mode: requires --lora or --lora-scaled');
  return undefined;
}

/** Flags override the model's recommendation; there is always a seed, so that it can be reported. */
export function samplingOf(flags: GenerationFlags, recommended: SamplingOptions, seed: number): SamplingOptions {
  return { ...recommended, ...samplingFlags(flags), seed };
}

/** The flags alone, for a resumed generation that keeps its other settings. */
export function resumedSampling(flags: GenerationFlags): SamplingOptions {
  const { seed } = flags;
  return { ...samplingFlags(flags), ...(seed === undefined || seed === -1 ? {} : { seed }) };
}

function samplingFlags(flags: GenerationFlags): SamplingOptions {
  return definedFields<SamplingOptions>({
    temperature: flags.temperature,
    topK: flags.topK,
    topP: flags.topP,
    minP: flags.minP,
    repetitionPenalty: flags.repetitionPenalty,
    penaltyWindow: flags.penaltyWindow,
    presencePenalty: flags.presencePenalty,
    frequencyPenalty: flags.frequencyPenalty,
  });
}

export function seedOf(flags: GenerationFlags, randomSeed: () => number): number {
  return flags.seed === undefined || flags.seed === -1 ? randomSeed() : flags.seed;
}

/** Options of one generation except sampling and signal. */
export function limitsOf(flags: GenerationFlags): GenerateOptions {
  const { maxTokens, stop, escape } = flags;
  return definedFields<GenerateOptions>({
    maxTokens: maxTokens === -1 ? undefined : maxTokens,
    ignoreEos: flags.ignoreEos,
    stop: escape === true ? stop?.map(unescapeText) : stop,
    overflow: flags.overflow,
  });
}
