/** Mutations of valid inputs, for fuzzing: bytes, text of known tokens, JSON values. The same random numbers give the same result. */

/** A source of random numbers, such as `createRng(seed)`. */
export interface Random {
  /** An integer from 0 to `bound - 1`. */
  nextInt(bound: number): number;
}

export function pick<Item>(random: Random, items: ArrayLike<Item>): Item {
  return items[random.nextInt(items.length)] as Item;
}

/** Integers at which handling of sizes, counts and offsets often fails. */
const extremeIntegers: readonly bigint[] = [
  ...[0n, 1n, 2n, 7n, 8n, 31n, 32n, 63n, 64n, 127n, 128n, 255n, 256n, 4096n, 65_535n, 65_536n],
  ...[2n ** 20n, 2n ** 24n, 2n ** 31n - 1n, 2n ** 31n, 2n ** 32n - 1n, 2n ** 32n, 2n ** 40n],
  ...[2n ** 53n - 1n, 2n ** 53n, 2n ** 62n, 2n ** 63n - 1n, 2n ** 63n, 2n ** 64n - 1n],
];

export function extremeInteger(random: Random): bigint {
  return pick(random, extremeIntegers);
}

/** A few changes of bits, integers and ranges. */
export function mutateBytes(random: Random, bytes: Uint8Array, maxBytes = 65_536): Uint8Array {
  let result: Uint8Array = bytes.slice();
  for (let count = 1 + random.nextInt(4); count > 0; count--) result = changeBytes(random, result);
  return result.subarray(0, maxBytes);
}

function changeBytes(random: Random, bytes: Uint8Array): Uint8Array {
  if (bytes.length === 0) return Uint8Array.of(random.nextInt(256));
  const at = random.nextInt(bytes.length);
  const end = Math.min(bytes.length, at + 1 + random.nextInt(16));
  switch (random.nextInt(7)) {
    case 0:
      bytes[at] = (bytes[at] as number) ^ (1 << random.nextInt(8));
      return bytes;
    case 1:
      bytes[at] = random.nextInt(256);
      return bytes;
    case 2:
      return writeInteger(bytes, at, 2 ** random.nextInt(4), extremeInteger(random));
    case 3:
      return concat(bytes.subarray(0, at), bytes.subarray(end));
    case 4:
      return concat(bytes.subarray(0, end), bytes.subarray(at, end), bytes.subarray(end));
    case 5:
      return concat(bytes.subarray(0, at), new Uint8Array(1 + random.nextInt(32)), bytes.subarray(at));
    default:
      return bytes.subarray(0, at);
  }
}

/** Overwrites bytes by a little-endian integer. */
export function writeInteger(bytes: Uint8Array, at: number, width: number, value: bigint): Uint8Array {
  for (let i = 0; i < width && at + i < bytes.length; i++) bytes[at + i] = Number((value >> BigInt(8 * i)) & 0xffn);
  return bytes;
}

export function concat(...parts: readonly Uint8Array[]): Uint8Array {
  const result = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    result.set(part, at);
    at += part.length;
  }
  return result;
}

/**
 * Removes, repeats, swaps and replaces tokens.
 * @param pattern matches one token of the language
 * @param vocabulary tokens to insert
 */
export function mutateText(random: Random, text: string, pattern: RegExp, vocabulary: readonly string[]): string {
  const tokens = text.match(pattern) ?? [];
  for (let count = 1 + random.nextInt(5); count > 0; count--) {
    const at = random.nextInt(tokens.length + 1);
    const length = 1 + random.nextInt(6);
    const kind = random.nextInt(6);
    if (kind === 0) tokens.splice(at, length);
    else if (kind === 1) tokens.splice(at, 0, ...tokens.slice(at, at + length));
    else if (kind === 2) tokens.splice(at, 1, pick(random, vocabulary));
    else if (kind === 3) tokens.splice(at, 0, ...tokens.splice(random.nextInt(tokens.length + 1), length));
    else if (kind === 4) tokens.splice(at, 0, ...Array.from({ length }, () => pick(random, vocabulary)));
    else tokens.splice(at, 0, pick(random, vocabulary).repeat(1 + random.nextInt(200)));
  }
  return tokens.join('');
}

/** A value of JSON. */
export type JsonTree = null | boolean | number | string | JsonTree[] | { [key: string]: JsonTree };

const extremeNumbers: readonly number[] = [
  ...[0, 1, -1, 2, 0.5, -0.5, 3, 64, 1e9, -1e9, 2 ** 31 - 1, 2 ** 31, 2 ** 32, 2 ** 53 - 1, 2 ** 53, 1e20],
  ...[1e-30, 1e38, 1e39, 1e308, -1e308],
];
const extremeStrings: readonly string[] = [
  ...['', ' ', '\0', '\n', '..', '/', '../x', '\u{1F600}', '\uD800', 'a'.repeat(5000), '__proto__', 'constructor'],
  ...['(a+)+$', '[', '\\p{L}+', '#/$defs/a', '%s', '{{ x }}', '0', 'null', 'f32', 'toString'],
];

function anyValue(random: Random): JsonTree {
  const kinds: readonly (() => JsonTree)[] = [
    () => null,
    () => random.nextInt(2) === 0,
    () => pick(random, extremeNumbers),
    () => pick(random, extremeStrings),
    () => [],
    () => ({}),
    () => Array.from({ length: 1 + random.nextInt(5) }, () => pick(random, extremeNumbers)),
    () => nested(2 + random.nextInt(200)),
  ];
  return pick(random, kinds)();
}

function nested(depth: number): JsonTree {
  let value: JsonTree = 1;
  for (let i = 0; i < depth; i++) value = i % 2 === 0 ? [value] : { a: value };
  return value;
}

/** All objects and arrays of a tree. */
function containersOf(value: JsonTree, found: (JsonTree[] | { [key: string]: JsonTree })[] = []): typeof found {
  if (typeof value !== 'object' || value === null) return found;
  found.push(value);
  for (const child of Object.values(value)) containersOf(child, found);
  return found;
}

/**
 * Replaces, removes, renames, repeats and moves members.
 * @param members members to insert into objects, by name
 */
export function mutateJson(
  random: Random,
  value: JsonTree,
  members: Readonly<Record<string, JsonTree>> = {},
): JsonTree {
  const root = { value: structuredClone(value) };
  for (let count = 1 + random.nextInt(4); count > 0; count--) changeJson(random, root, members);
  return root.value;
}

/** Deep enough that recursion exhausts the stack. */
const deepLevels = 20_000;

/** The same for a JSON text. Some results are nested so deeply that they cannot be parsed and mutated further. */
export function mutateJsonText(random: Random, text: string, members: Readonly<Record<string, JsonTree>> = {}): string {
  if (text.includes('['.repeat(deepLevels))) return text;
  const changed = JSON.stringify(mutateJson(random, JSON.parse(text) as JsonTree, members));
  if (random.nextInt(40) > 0) return changed;
  const places = [...changed.matchAll(/(?<=[[:,])(?:null|true|false|-?\d+)(?=[\],}])/g)];
  if (places.length === 0) return changed;
  const { index, 0: scalar } = pick(random, places);
  const deep = '['.repeat(deepLevels) + ']'.repeat(deepLevels);
  return changed.slice(0, index) + deep + changed.slice(index + scalar.length);
}

function changeJson(random: Random, root: { value: JsonTree }, members: Readonly<Record<string, JsonTree>>): void {
  const containers = containersOf(root.value);
  if (containers.length === 0) return void (root.value = anyValue(random));
  const container = pick(random, containers);
  const keys = Object.keys(container);
  const key = keys.length === 0 ? '0' : pick(random, keys);
  const value = (container as { [key: string]: JsonTree })[key] ?? null;
  const names = Object.keys(members);
  const kind = random.nextInt(names.length > 0 ? 8 : 6);
  if (kind <= 1) put(container, key, anyValue(random));
  else if (kind === 2) remove(container, key);
  else if (kind === 3) put(container, pick(random, extremeStrings), value);
  else if (kind === 4) put(container, key, structuredClone(pick(random, containers)));
  else if (kind === 5) put(container, key, Array.isArray(value) ? [...value, ...value] : pick(random, extremeNumbers));
  else {
    const name = pick(random, names);
    put(container, name, structuredClone(members[name] as JsonTree));
  }
}

/** Sets a member, also one that is called `__proto__`; names that are no indices append to arrays. */
function put(container: JsonTree[] | { [key: string]: JsonTree }, key: string, value: JsonTree): void {
  if (!Array.isArray(container)) {
    Object.defineProperty(container, key, { value, enumerable: true, configurable: true, writable: true });
  } else if (/^\d+$/.test(key) && Number(key) < container.length) container[Number(key)] = value;
  else container.push(value);
}

function remove(container: JsonTree[] | { [key: string]: JsonTree }, key: string): void {
  if (Array.isArray(container)) container.splice(Number(key), 1);
  else delete container[key];
}
