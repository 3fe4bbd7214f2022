/** Names of flags, which are derived from the names of options. */

/** The option that gives a group its purpose; its flag has the name of the group. */
const principalOptions: ReadonlySet<string> = new Set(['memory.budget', 'sparsity.calibration', 'lora.adapters']);

/** Lists: their flags are in the singular and may be repeated. */
const lists: ReadonlySet<string> = new Set([
  'adapters',
  'apiKeys',
  'corsOrigins',
  'pageOrigins',
  'embeddingModels',
  'models',
  'rerankers',
]);

/** Switches that are on unless a flag turns them off. */
const defaultSwitches: ReadonlySet<string> = new Set(['kvCache.prefixSharing']);

/** Flags whose options are named by the packages below the command line. */
const otherFlags: ReadonlyMap<string, string> = new Map([
  ['numThreads', '--threads'],
  ['numDecoded', '--decoded'],
  ['overwrite', '--force'],
]);

/**
 * The flag of an option: the words of its path in kebab case, with `kv` for `kvCache`, and without the unit, which the
 * flag's value has: `kvCache.offload.folder` is `--kv-offload-folder`, `queueTimeoutMs` is `--queue-timeout 5`.
 * `kvCache.prefixSharing`, which is on by default, is `--no-kv-prefix-sharing`.
 */
export function flagOf(path: string): string {
  const other = otherFlags.get(path);
  if (other !== undefined) return other;
  const names = path.split('.');
  if (principalOptions.has(path)) names.pop();
  const words = names.map((name) => {
    if (name === 'kvCache') return 'kv';
    const bare = lists.has(name) ? name.slice(0, -1) : name.replace(/(Ms|Bytes)$/, '');
    return bare.replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
  });
  return `--${defaultSwitches.has(path) ? 'no-' : ''}${words.join('-')}`;
}

/** The options of loading a model that have a flag. */
export const loadOptionsWithFlags: readonly string[] = [
  ...['context', 'batchSize', 'maxSessions', 'threads', 'activations', 'native', 'backend'],
  ...['profile', 'attention', 'policyFile', 'speculative', 'quantize', 'mmproj'],
  ...['kvCache.dtype', 'kvCache.rotation', 'kvCache.eviction', 'kvCache.capacity', 'kvCache.budget'],
  ...['kvCache.eviction.firstTokens', 'kvCache.eviction.recentTokens', 'kvCache.prefixSharing', 'kvCache.whenFull'],
  ...['kvCache.offload.memory', 'kvCache.offload.folder', 'lora.adapters', 'lora.mode'],
  ...['memory', 'memory.budget', 'memory.hot', 'memory.warm', 'memory.cold', 'memory.folder'],
  ...['sparsity.calibration', 'sparsity.maxActive', 'sparsity.use', 'sparsity.verify', 'pooling'],
];

/** The options that have a flag: those of the engine, and of embedding, evaluation and conversion. */
export const optionsWithFlags: readonly string[] = [
  ...loadOptionsWithFlags,
  ...['maxTokens', 'stop', 'ignoreEos', 'overflow', 'grammar', 'jsonSchema', 'compileTimeoutMs'],
  ...['temperature', 'topK', 'topP', 'minP', 'repetitionPenalty', 'penaltyWindow', 'presencePenalty'],
  ...['frequencyPenalty', 'seed', 'allowRequantize', 'positions', 'toolChoice'],
  ...['topN', 'instruction'],
  ...['dimensions', 'promptName', 'lengths', 'type', ...otherFlags.keys()],
];

/** The option of loading a model that a flag stands for. */
export function optionOf(flag: string): string {
  return loadOptionsWithFlags.find((path) => flagOf(path) === flag) ?? flag;
}
