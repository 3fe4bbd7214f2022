/** Chooses which files of a repository to download. */
import { ArgumentError } from '@winnow/tensor';

/** Which files to select. Patterns support `*` (any characters, including `/`) and `?` (one character). */
export interface FileSelection {
  /** Select files that match any of these patterns instead of the default selection. */
  readonly files?: readonly string[];
  /** Exclude files that match any of these patterns. */
  readonly ignore?: readonly string[];
  /** Select the one GGUF model whose name contains this text or matches this pattern, ignoring case: `q4_k_m`. */
  readonly gguf?: string;
  /** Select the image encoder of the GGUF model as well, the file `mmproj*.gguf` in its folder. Default false. */
  readonly mmproj?: boolean;
}

/** A GGUF model: one file, or the parts of a split model in order. */
export interface GgufGroup {
  /** The file to open: the first part. */
  readonly name: string;
  readonly parts: readonly string[];
}

/**
 * Returns the names of the files to download. By default: config, tokenizer and template files of the root, the configs
 * of sentence-transformers modules, layers of embedding models, and the weights: `model.safetensors`, or its index and
 * shards, or the only GGUF model.
 * @throws {ArgumentError} when a pattern without wildcards, the GGUF selection or the default matches nothing, or when
 *   several GGUF models match
 */
export function selectFiles(names: readonly string[], selection: FileSelection = {}): string[] {
  const ignore = selection.ignore ?? [];
  const candidates = names.filter((name) => !ignore.some((pattern) => matchesPattern(name, pattern)));
  const chosen = new Set<string>();
  for (const pattern of selection.files ?? []) {
    const found = candidates.filter((name) => matchesPattern(name, pattern));
    if (found.length === 0 && !/[*?]/.test(pattern)) throw notFound('files', pattern, candidates);
    for (const name of found) chosen.add(name);
  }
  if (selection.gguf !== undefined) for (const name of chooseGguf(candidates, selection.gguf).parts) chosen.add(name);
  if (selection.files === undefined && selection.gguf === undefined) {
    for (const name of defaultFiles(candidates)) chosen.add(name);
  }
  if (selection.mmproj === true) {
    for (const { name } of groupGgufFiles([...chosen])) {
      const encoder = mmprojBeside(name, candidates);
      if (encoder !== undefined) chosen.add(encoder);
    }
  }
  if (chosen.size === 0) throw notFound('files', (selection.files ?? []).join(', '), candidates);
  return candidates.filter((name) => chosen.has(name));
}

/** Weight types of image encoders in order of preference: more bits than in training gain nothing. */
const preferredWeights = ['f16', 'bf16', 'q8_0', 'f32'];

/** Whether a file is an image encoder of llama.cpp, `mmproj*.gguf`. */
export function isMmproj(name: string): boolean {
  return /(^|\/)mmproj[^/]*\.gguf$/i.test(name);
}

/**
 * The image encoder in the folder of a GGUF model, as llama.cpp's `-hf` finds it. Of several, the one named `mmproj-` plus the name
 * of the model is preferred, then those with preferred weight types in their names.
 */
export function mmprojBeside(model: string, names: readonly string[]): string | undefined {
  const folderOf = (name: string): string => name.slice(0, name.lastIndexOf('/') + 1);
  if (!/\.gguf$/i.test(model) || isMmproj(model)) return undefined;
  const ownName = `${folderOf(model)}mmproj-${model.slice(folderOf(model).length)}`; // as conversion names it
  const rank = (name: string): number =>
    name === ownName ? -1 : preferredWeights.findIndex((kind) => new RegExp(`[-_.]${kind}[-_.]`, 'i').test(name)) >>> 0;
  const found = names.filter((name) => isMmproj(name) && folderOf(name) === folderOf(model));
  return found.sort().toSorted((a, b) => rank(a) - rank(b))[0];
}

/** The GGUF models among `names`, split ones as one group. Incomplete groups and image encoders are left out. */
export function groupGgufFiles(names: readonly string[]): GgufGroup[] {
  const all = new Set(names);
  const groups: GgufGroup[] = [];
  for (const name of names) {
    if (!/\.gguf$/i.test(name) || isMmproj(name)) continue;
    const split = /^(.*)-(\d{5})-of-(\d{5})(\.gguf)$/i.exec(name);
    if (split === null) {
      groups.push({ name, parts: [name] });
      continue;
    }
    const [, prefix, number, count, suffix] = split;
    if (Number(number) !== 1 || Number(count) > names.length) continue;
    const parts = Array.from(
      { length: Number(count) },
      (_, i) => `${prefix}-${String(i + 1).padStart(5, '0')}-of-${count}${suffix}`,
    );
    if (parts.every((part) => all.has(part))) groups.push({ name, parts });
  }
  return groups;
}

/** Worst-case time is proportional to the product of both lengths, never exponential. */
export function matchesPattern(name: string, pattern: string): boolean {
  let n = 0;
  let p = 0;
  let star = -1;
  let starName = 0;
  while (n < name.length) {
    if (pattern[p] === '*') {
      star = p++;
      starName = n;
    } else if (pattern[p] === '?' || (p < pattern.length && pattern[p] === name[n])) {
      p++;
      n++;
    } else if (star >= 0) {
      p = star + 1;
      n = ++starName;
    } else return false;
  }
  while (pattern[p] === '*') p++;
  return p === pattern.length;
}

function chooseGguf(names: readonly string[], wanted: string): GgufGroup {
  const groups = groupGgufFiles(names);
  const pattern = (/[*?]/.test(wanted) ? wanted : `*${wanted}*`).toLowerCase();
  const found = groups.filter(({ name }) => name.toLowerCase() === wanted.toLowerCase());
  if (found.length === 0) found.push(...groups.filter(({ name }) => matchesPattern(name.toLowerCase(), pattern)));
  const [group, ...others] = found;
  if (group === undefined)
    throw notFound(
      'gguf',
      wanted,
      groups.map(({ name }) => name),
    );
  if (others.length > 0) {
    throw new ArgumentError({
      argument: 'gguf',
      expected: 'a selection of one model',
      actual: `"${wanted}", which matches ${found.map(({ name }) => name).join(', ')}`,
    });
  }
  return group;
}

/** Whether a file holds an extra layer of an embedding model, such as those of BGE-M3. */
export function isTokenLayer(name: string): boolean {
  return /^(sparse|colbert)_linear\.(pt|safetensors)$/.test(name);
}

function defaultFiles(names: readonly string[]): string[] {
  const small = names.filter(
    (name) =>
      (/^[^/]+\.(json|jinja|txt|model)$/i.test(name) && !name.endsWith('.index.json')) ||
      name === 'artifact.metadata' ||
      /^additional_chat_templates\/[^/]+\.jinja$/.test(name) ||
      /^\d+_[^/]+\/(config\.json|model\.safetensors)$/.test(name) ||
      isTokenLayer(name),
  );
  return [...small, ...defaultWeights(names)];
}

function defaultWeights(names: readonly string[]): readonly string[] {
  if (names.includes('model.safetensors')) return ['model.safetensors'];
  const index = 'model.safetensors.index.json';
  const safetensors = names.filter((name) => /^[^/]+\.safetensors$/.test(name) && !isTokenLayer(name));
  if (names.includes(index)) {
    const shards = safetensors.filter((name) => /^model-\d+-of-\d+\.safetensors$/.test(name));
    return [index, ...(shards.length > 0 ? shards : safetensors)];
  }
  if (safetensors.length === 1) return safetensors;
  const groups = groupGgufFiles(names);
  const [group, ...others] = groups;
  if (others.length > 0) {
    throw new ArgumentError({
      argument: 'gguf',
      expected: `a selection of one of ${groups.map(({ name }) => name).join(', ')}`,
      actual: 'none',
    });
  }
  if (group !== undefined) return group.parts;
  const weights = names.filter((name) => /\.(bin|pt|pth|h5|msgpack|onnx|safetensors)$/.test(name));
  throw new ArgumentError({
    argument: 'files',
    expected: 'a repository with model.safetensors, its index, or a GGUF file',
    actual: weights.length === 0 ? 'no weights' : weights.slice(0, 8).join(', '),
    hint: 'files: [...] downloads any others',
  });
}

function notFound(argument: string, pattern: string, names: readonly string[]): ArgumentError {
  return new ArgumentError({
    argument,
    expected: `a match among ${names.length === 0 ? 'no files' : names.slice(0, 12).join(', ')}${names.length > 12 ? ', ...' : ''}`,
    actual: `"${pattern}"`,
  });
}
